"""Defines the rows of dry runs on the HTTP surface."""

from __future__ import annotations

from pydantic import Field

from controller.http.models import Item


class PlannedChange(Item):
    """A change that a request would make, of a dry run: nothing was done. Values are in words."""

    entity: str = Field(description="broker ID, topic NAME, or a partition as TOPIC-NUMBER")
    what: str = Field(description="a setting, or mark, leaders, replicas")
    before: str = ""
    after: str = ""
    why: str = Field("", description="what stays as it is, and why")
