"""The operations that actors carry out, in a table for each kind of actor."""

from tests.simulation.operations.agents import AGENT
from tests.simulation.operations.kinds import Dice, Kind, Refused, Unknown
from tests.simulation.operations.maintenance import MAINTENANCE
from tests.simulation.operations.services import SERVER, SERVICE

__all__ = ["AGENT", "MAINTENANCE", "SERVER", "SERVICE", "Dice", "Kind", "Refused", "Unknown"]
