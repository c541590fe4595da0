"""The blocking half of prepare and unprepare: look up, make, restore, undo.

Order is what makes a crash at any line harmless:

- make: intent recorded (only with side effects) → effects → CDI file → done recorded. Killed before the end, the intent or the CDI file
  still marks the devices as held, and the next prepare or the reconcile finishes or undoes it.
- undo: CDI file removed → effects undone → record removed. Killed in between, the record still holds the devices, an unprepare goes on
  where it stopped, and a prepare sees the missing CDI file and makes everything again. The other way round, a file without record would
  be left and effects could be undone under a record that looks whole.

The caller holds the locks of the claim and its devices.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_dra.cdi.builder import ClaimDevice
from gpu_dra.claims.journal_format import Damage, DamagedEntry
from gpu_dra.claims.plan import PreparePlan, plan_prepare
from gpu_dra.claims.recover import recover_claim
from gpu_dra.claims.report import Report, Step
from gpu_dra.core.errors import Broken, GpuDraError, NotReady
from gpu_dra.model.prepared import Effect, Phase, PreparedClaim, PreparedDevice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_dra.cdi.spec import Spec
    from gpu_dra.claims.journal import Journal, JournalScan
    from gpu_dra.claims.plan import PlannedDevice
    from gpu_dra.claims.ports import SideEffects, SpecBuilder, SpecStore
    from gpu_dra.model.claim import AllocatedClaim
    from gpu_dra.model.inventory import Inventory

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is recorded of a claim, and whether it is still true."""

    entry: PreparedClaim | None
    flaw: str | None = None
    """Why the record cannot be answered as it is; None when it can, or when there is none."""
    damage: str | None = None
    """Reason for which a journal file was set aside just now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """All that marks a claim as held here."""

    scan: JournalScan
    unexplained: Mapping[str, PreparedClaim]
    """Claims without a usable record, by UID: a CDI file, a damaged journal file, or both."""


class Unexplained(NotReady):
    """Claims are held here of which neither record nor CDI file can tell the devices; the API may."""

    def __init__(self, uids: frozenset[str]) -> None:
        super().__init__(f"record and CDI file of the claims with UID {', '.join(sorted(uids))} are lost or damaged")
        self.uids = uids


class HostWork:
    """Journal, CDI files and side effects of one node."""

    def __init__(self, *, journal: Journal, specs: SpecStore, builder: SpecBuilder, effects: SideEffects, boot_id: str) -> None:
        self._journal = journal
        self._specs = specs
        self._builder = builder
        self._effects = effects
        self._reported: tuple[str, ...] = ()
        self._boot_id = boot_id

    def look_up(self, uid: str, inventory: Inventory) -> Finding:
        """The claim's record, compared with the host. A damaged file is set aside; its CDI file goes on holding the devices."""
        finding = self.recorded(uid)
        if finding.entry is None:
            return finding
        return Finding(entry=finding.entry, flaw=self._flaw(finding.entry, inventory))

    def recorded(self, uid: str) -> Finding:
        """The claim's record, whatever became of the host: unprepare must not fail for what it is about to take away.

        Raises NotReady for the record of a newer build: it may tell of effects that only that build can undo.
        """
        try:
            return Finding(entry=self._journal.read(uid))
        except DamagedEntry as error:
            if error.damage is Damage.NEWER:
                raise NotReady(f"{error}; run the version of gpu-dra that wrote it, or a later one") from error
            moved_to = self._journal.set_aside(uid, error.damage)
            log.warning("journal file set aside", extra={"claim_uid": uid, "error": str(error), "moved_to": str(moved_to)})
            return Finding(entry=None, damage=error.damage)

    def holds(self, uid: str) -> bool:
        """True when anything on the node is there for this claim. Raises GpuDraError."""
        return self._journal.has(uid) or uid in self._specs.uids()

    def survey(self, inventory: Inventory) -> Survey:
        """Every claim that is held here, known or not."""
        scan = self._journal.scan()
        unexplained = (self._specs.uids() | scan.damaged.keys()) - scan.entries.keys()
        return Survey(
            scan=scan, unexplained={uid: recover_claim(uid, self._read_spec(uid), inventory) for uid in sorted(unexplained)}
        )

    def prepare(
        self,
        claim: AllocatedClaim,
        inventory: Inventory,
        unfinished: PreparedClaim | None,
        explained: Mapping[str, PreparedClaim],
        report: Report,
    ) -> PreparedClaim:
        """Prepare a claim that is new here, or whose earlier attempt did not finish. Raises GpuDraError and leaves nothing behind.

        Raises Unexplained when a claim may hold any device; `explained` has by UID what the API said of such claims.
        """
        if unfinished is not None:
            self.undo(unfinished.ref.uid, unfinished, report)
        with report.timed(Step.PLAN):
            survey = self.survey(inventory)
            unknown = {uid for uid, entry in survey.unexplained.items() if not entry.devices} - explained.keys() - {claim.ref.uid}
            if unknown:
                raise Unexplained(frozenset(unknown))
            told = [explained[uid] for uid, entry in survey.unexplained.items() if not entry.devices and uid in explained]
            holders = [*survey.scan.entries.values(), *survey.unexplained.values(), *told]
            plan = plan_prepare(claim, inventory, holders)
            effects = self._effects.plan(plan)
        intent = self._entry(plan, Phase.INTENT, effects)
        try:
            if effects:
                self._record(intent, report)
                self._apply(effects, report)
            entry = self._finish(plan, effects, report)
        except BaseException:
            if (
                claim.ref.uid not in survey.unexplained
            ):  # a file that was there before may be in use; it goes on holding the devices
                self._clean_up(intent, report)
            raise
        report.holds(lambda: self._journal.scan().entries)
        return entry

    def restore(self, entry: PreparedClaim, plan: PreparePlan, report: Report) -> PreparedClaim:
        """Make again whatever a recorded claim has lost. Raises GpuDraError; the record stays."""
        self._apply(entry.effects, report)
        return self._finish(plan, entry.effects, report)

    def undo(self, uid: str, entry: PreparedClaim | None, report: Report) -> None:
        """Take back everything done for a claim; succeeds where there is nothing. Raises GpuDraError; what is left stays recorded."""
        with report.timed(Step.UNDO):
            self._specs.remove(uid)
            for effect in reversed(entry.effects if entry else ()):
                self._effects.undo(effect)
        with report.timed(Step.JOURNAL):
            if self._journal.remove(uid):
                report.holds(lambda: self._journal.scan().entries)

    def _flaw(self, entry: PreparedClaim, inventory: Inventory) -> str | None:
        if entry.phase is not Phase.DONE:
            return "its prepare did not finish"
        if entry.boot_id != self._boot_id:
            return "the machine was rebooted"
        if entry.driver_version != inventory.driver_version:
            return "another driver version is loaded"
        for device in entry.devices:
            gpu, mig = inventory.find(device.device) or (None, None)
            if device.uuid != (mig.uuid if mig else gpu.uuid if gpu else None):
                return f"{device.device} is not the device it was"
        spec = self._specs.read_intact(entry.ref.uid)
        if spec is None:
            return "the CDI file is missing or damaged"
        missing = self._builder.missing_paths(spec)
        return f"{', '.join(missing)}: gone or changed" if missing else None

    def _finish(self, plan: PreparePlan, effects: tuple[Effect, ...], report: Report) -> PreparedClaim:
        uid = plan.ref.uid
        devices = {device.name: ClaimDevice(name=device.name, gpu=device.gpu, mig=device.mig) for device in plan.devices}
        with report.timed(Step.CDI_BUILD):
            built = self._builder.build(uid, tuple(devices.values()), driver_version=plan.driver_version)
        for lack in built.missing:
            if lack not in self._reported:
                log.warning("containers on this node lack something", extra={"lack": lack})
        self._reported = built.missing
        with report.timed(Step.CDI_WRITE):
            self._specs.write(uid, built.spec)
        entry = self._entry(plan, Phase.DONE, effects, cdi_ids=built.cdi_ids, node_paths=built.node_paths)
        self._record(entry, report)
        return entry

    def _entry(
        self,
        plan: PreparePlan,
        phase: Phase,
        effects: tuple[Effect, ...],
        *,
        cdi_ids: Mapping[str, tuple[str, ...]] | None = None,
        node_paths: tuple[str, ...] = (),
    ) -> PreparedClaim:
        ids = cdi_ids or {}
        return PreparedClaim(
            ref=plan.ref,
            phase=phase,
            devices=tuple(_prepared(device, ids.get(device.name, ())) for device in plan.devices),
            boot_id=self._boot_id,
            driver_version=plan.driver_version,
            node_paths=node_paths,
            effects=effects,
        )

    def _apply(self, effects: tuple[Effect, ...], report: Report) -> None:
        with report.timed(Step.EFFECTS):
            for effect in effects:
                self._effects.apply(effect)

    def _record(self, entry: PreparedClaim, report: Report) -> None:
        with report.timed(Step.JOURNAL):
            self._journal.write(entry)

    def _clean_up(self, intent: PreparedClaim, report: Report) -> None:
        try:
            self.undo(intent.ref.uid, intent, report)
        except GpuDraError as error:  # the prepare's own error is what the kubelet must hear; reconcile goes on with the rest
            log.warning("failed prepare not undone yet", extra={"claim": str(intent.ref), "error": str(error)})

    def _read_spec(self, uid: str) -> Spec | None:
        try:
            return self._specs.read(uid)
        except (Broken, NotReady):  # one odd entry in the directory is one claim's trouble
            return None


def _prepared(device: PlannedDevice, cdi_ids: tuple[str, ...]) -> PreparedDevice:
    return PreparedDevice(
        request=device.request,
        pool=device.pool,
        device=device.name,
        uuid=device.uuid,
        cdi_ids=cdi_ids,
        admin_access=device.admin_access,
        share_id=device.share_id,
        gpu_uuid=device.gpu.uuid,
        placement=device.placement,
    )
