"""The tools of filesystem sandboxes. Layer: sandbox."""

from __future__ import annotations

from typing import Final

from versioned_state.sandbox.enums import SandboxType
from versioned_state.sandbox.tools.tool import SandboxTool

__all__ = [
    "create_directory",
    "delete_file",
    "directory_tree",
    "edit_file",
    "get_file_info",
    "list_allowed_directories",
    "list_directory",
    "move_file",
    "read_file",
    "read_multiple_files",
    "search_files",
    "write_file",
]

create_directory: Final = SandboxTool("create_directory", SandboxType.FILESYSTEM, "Make a folder.")
delete_file: Final = SandboxTool("delete_file", SandboxType.FILESYSTEM, "Remove a file, a link or an empty folder.")
directory_tree: Final = SandboxTool("directory_tree", SandboxType.FILESYSTEM, "List a folder and all that is in it.")
edit_file: Final = SandboxTool("edit_file", SandboxType.FILESYSTEM, "Replace texts in a file.")
get_file_info: Final = SandboxTool(
    "get_file_info", SandboxType.FILESYSTEM, "The type, size, time and permissions of a file."
)
list_allowed_directories: Final = SandboxTool(
    "list_allowed_directories", SandboxType.FILESYSTEM, "The folders that paths are relative to."
)
list_directory: Final = SandboxTool("list_directory", SandboxType.FILESYSTEM, "List a folder.")
move_file: Final = SandboxTool("move_file", SandboxType.FILESYSTEM, "Give a file or folder another path.")
read_file: Final = SandboxTool("read_file", SandboxType.FILESYSTEM, "Read the text of a file.")
read_multiple_files: Final = SandboxTool("read_multiple_files", SandboxType.FILESYSTEM, "Read the texts of some files.")
search_files: Final = SandboxTool("search_files", SandboxType.FILESYSTEM, "Find files by a pattern of their names.")
write_file: Final = SandboxTool(
    "write_file", SandboxType.FILESYSTEM, "Write a file, in place of the one that is there."
)
