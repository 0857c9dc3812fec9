"""``Event`` and the parts of a message: text, data, images, audio, files, refusals. Layer: services."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field

from versioned_state.services.schemas.model import Model, RunStatus


class Error(Model):
    """The reason for a failure."""

    code: str
    message: str


class Event(Model):
    """An element of the stream of an agent's answer: its kind, its status and its place in the stream."""

    sequence_number: int | None = None
    object: str
    status: str | None = None
    error: Error | None = None

    def created(self) -> Self:
        """Set the status."""
        self.status = RunStatus.Created
        return self

    def in_progress(self) -> Self:
        """Set the status."""
        self.status = RunStatus.InProgress
        return self

    def completed(self) -> Self:
        """Set the status."""
        self.status = RunStatus.Completed
        return self

    def failed(self, error: Error) -> Self:
        """Set the status, and the reason."""
        self.error = error
        self.status = RunStatus.Failed
        return self

    def rejected(self) -> Self:
        """Set the status."""
        self.status = RunStatus.Rejected
        return self

    def canceled(self) -> Self:
        """Set the status."""
        self.status = RunStatus.Canceled
        return self


class Content(Event):
    """A part of a message.

    ``index`` is its place in the message ``msg_id``. A ``delta`` continues the existing part.
    """

    type: str
    object: str = "content"
    index: int | None = None
    delta: bool | None = False
    msg_id: str | None = None


class TextContent(Content):
    """Text."""

    type: Literal["text"] = "text"
    text: str | None = None


class DataContent(Content):
    """Data: a function call, its result, or anything else."""

    type: Literal["data"] = "data"
    data: dict[Any, Any] | None = None


class ImageContent(Content):
    """An image, by its URL, which may be a ``data:`` URL."""

    type: Literal["image"] = "image"
    image_url: str | None = None


class AudioContent(Content):
    """Audio, in base64."""

    type: Literal["audio"] = "audio"
    data: str | None = None
    format: str | None = None


class FileContent(Content):
    """A file, by its URL, its id or its content."""

    type: Literal["file"] = "file"
    file_url: str | None = None
    file_id: str | None = None
    filename: str | None = None
    file_data: str | None = None


class RefusalContent(Content):
    """The reason that a model gave for not answering."""

    type: Literal["refusal"] = "refusal"
    refusal: str | None = None


AgentContent = Annotated[
    TextContent | ImageContent | DataContent | AudioContent | FileContent | RefusalContent,
    Field(discriminator="type"),
]
