"""Import: a file becomes items, items become conversations, and these become commits.

source          bytes, compressed or not, as items of JSON
conversations   items as conversations: where the messages are, and what else there is
writer          conversations as commits of a repository
"""
