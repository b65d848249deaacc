"""The journal cannot be written for a while: the controller goes on, and the journal says what it lacks."""

from __future__ import annotations

from controller.journal.reader import Gap, read
from state_machines.journal.events import Kind, Row
from tests.cluster.scene import Scene, scene
from tests.polling import eventually

FAILING = "regent_journal_failing"


async def failing(stage: Scene) -> bool:
    return await stage.metric(FAILING) == 1


async def written(stage: Scene) -> bool:
    return await stage.metric(FAILING) == 0


async def test_leaders_move_while_the_journal_has_no_folder() -> None:
    async with scene() as stage:
        await stage.daemon.kill()
        folder = stage.daemon.journal
        away = folder.with_name("away")
        folder.rename(away)
        folder.write_text("in the way", encoding="utf-8")
        await stage.daemon.boot()

        await stage.w.cluster.brokers[2].kill()
        await stage.w.leads_nothing(2)
        await eventually(lambda: failing(stage), 30.0)
        await stage.flows()
        warnings = (await stage.daemon.status() or {})["warnings"]
        assert [text for text in warnings if "the journal cannot be written" in text]

        folder.unlink()
        away.rename(folder)
        await stage.w.cluster.revive(2)
        await eventually(lambda: written(stage), 60.0)
        await stage.proven()
        assert stage.daemon.log.read_text(encoding="utf-8").count("cannot be written and has a gap") == 1
        await stage.daemon.stop()

        found = list(read(folder))
        lost = [row.lost for row in found if isinstance(row, Row) and row.kind == Kind.UNRECORDED]
        [gap] = [gap for gap in found if isinstance(gap, Gap) and gap.rows]
        assert lost == [gap.rows]
        assert (gap.seq, gap.rows > 3) == (1, True), "the new term's beginning, the death and what followed"
        kinds = [row.kind for row in found if isinstance(row, Row)]
        assert kinds[-1] == Kind.CTL_RESIGNED
        await stage.daemon.boot()
        await stage.active()
