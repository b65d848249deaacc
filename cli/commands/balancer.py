"""Adds regent balancer: balances of regions over servers, their plans, and the switch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.commands.procedures import Pid
from cli.commands.region_changes import Request, change
from cli.help import Panel
from cli.session import Session, command, group

if TYPE_CHECKING:
    from cli.client import Json

MOVES_SHOWN: Final = 20
"""Moves of a dry run that people see."""
Force = Annotated[
    bool, typer.Option("--force", help="Also while regions are in transition; these stay where they are.")
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "balancer", "Spread regions evenly over servers.", Panel.REGIONS)
    command(named, examples=("regent balancer status", "regent balancer status -o json"))(status)
    example = "regent balancer run --wait --reason 'kv-5 is new'"
    change(named, run, "regent balancer run --dry-run", example, planned=foreseen)
    command(named, examples=("regent balancer plan 12", "regent balancer plan 12 -o wide"))(plan)
    change(named, on, "regent balancer on", at_once=True)
    change(named, off, "regent balancer off --reason 'a backup runs'", at_once=True)


def status(session: Session) -> None:
    """Show whether balances may begin, what one waits for, when the next look comes, and how the last balance ended."""
    session.output.detail("BalancerStatus", session.client().get("/v1/regions/balancer")["items"][0])


def run(force: Force = False) -> Request:
    """Plan which regions move to which servers so that each has its share, and move them, some at a time.

    Pinned regions, those that rest after a move, and those of cordoned or leaving servers stay. --dry-run makes the
    plan and shows its costs and its first moves, also while the balancer is off; with -o json it shows all moves.
    """
    return "/v1/regions/balancer/run", {"force": force}


def foreseen(session: Session, found: Json) -> None:
    """Shows the costs of a plan, and its first moves."""
    costs, moves = found.get("costs", []), found.get("moves", [])
    if costs:
        rounded = ({name: f"{one[name]:.3f}" for name in ("before", "after")} for one in costs)
        session.output.listing("BalanceCost", [one | some for one, some in zip(costs, rounded, strict=True)])
    if moves:
        session.output.listing("ForeseenMove", moves[:MOVES_SHOWN])
    if (more := len(moves) - MOVES_SHOWN) > 0:
        session.output.message(f"and {more:,} more: 'regent balancer run --dry-run -o json' lists all")


def plan(session: Session, pid: Pid) -> None:
    """List the moves that a balance has planned, and how far each is."""
    found = session.client().get(f"/v1/regions/balancer/plans/{pid}")["items"]
    session.output.listing("BalanceMove", found)


def on() -> Request:
    """Let balances begin again."""
    return "/v1/regions/balancer/on", {}


def off() -> Request:
    """Let no balance begin; one under way ends after its moves under way."""
    return "/v1/regions/balancer/off", {}
