"""Kills, stops and freezes daemons, and requests the hand-back of the role."""

from __future__ import annotations

from tests.kit.simulation.loop import Life
from tests.simulation.kafka import faults
from tests.simulation.kafka.acting import Acting


class DaemonActions(Acting):
    """Acts on daemons. A stopped process is started again later."""

    def do_kill_daemon(self, number: int, seconds: float) -> None:
        """Kills a daemon with kill -9."""
        node = self._daemon(number)
        if node is not None:
            node.kill()
            self._later(seconds, node.start)
            self.w.happened(faults.DAEMON_KILLED)

    def do_kill_daemon_at_write(self, number: int, write: int, when: str, seconds: float) -> None:
        """Kills a daemon with kill -9 before or after one of its next writes."""
        node = self._daemon(number)
        if node is not None:
            node.hooks.arm(write, when, seconds)

    def do_stop_daemon(self, number: int, seconds: float) -> None:
        """Sends SIGTERM to a daemon; it is started again ``seconds`` after its end."""
        node = self._daemon(number)
        if node is not None:
            node.terminate(seconds)
            self.w.happened(faults.DAEMON_STOPPED)

    def do_stop_daemon_at_write(self, number: int, write: int, seconds: float) -> None:
        """Sends SIGTERM to a daemon while one of its next writes is under way."""
        node = self._daemon(number)
        if node is not None:
            node.hooks.arm(write, "stop", seconds)

    def do_freeze_daemon(self, number: int, seconds: float) -> None:
        """Sends SIGSTOP to a daemon, and SIGCONT later: none of its threads run meanwhile, so it sends no pings."""
        node = self._daemon(number)
        if node is not None and node.process is not None and node.process.life is Life.RUNNING:
            node.freeze()
            self._later(seconds, node.resume, node.lives)

    def do_stall_daemon(self, number: int, seconds: float, guarded: int) -> None:
        """Stalls a daemon's loop while its session is kept; its stall guard, if it has one, ends it in time."""
        node = self._daemon(number)
        if node is None or node.process is None or node.process.life is not Life.RUNNING:
            return
        limit_s = node.settings.controller.loop_stall_ms_max / 1000
        node.stall()
        self.w.happened(faults.DAEMON_STALLED)
        if guarded and seconds > limit_s:
            self._later(limit_s, node.kill)
            self._later(limit_s + 1.0, node.start)
        else:
            self._later(seconds, node.resume, node.lives)

    def do_hand_back(self, seconds: float) -> None:
        """Requests the hand-back from the active daemon; ``seconds`` later the role is regent's again."""
        node = self.w.serving_daemon()
        if node is not None:
            node.hand_back()
            self.w.handed_over += 1
            self._later(seconds, self.w.actions.do_give_role, "regent")
            self.w.happened(faults.DAEMON_HANDBACK)
