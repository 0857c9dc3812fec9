"""Importers: what other frameworks have stored becomes branches and commits that the adapters read.

source            threads and steps: what every importer is, and its errors
run               the import itself: what is missing is written, then all is compared with the source
database          a SQLite file that is only read
appended          threads that are lists on a branch
langgraph         checkpoints of LangGraph, in SQLite or PostgreSQL
langgraph_tables  the tables that these are in
openai_agents     sessions of the OpenAI Agents SDK, in SQLite
adk               sessions of Google's ADK, in SQLite
agentscope        JSON sessions of AgentScope
"""
