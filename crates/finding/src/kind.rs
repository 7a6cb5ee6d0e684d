//! What is known about each kind of finding, in one place: every rendering takes its words from here.

use crate::{DurableByKind, Kind, Severity};

/// The fixed facts about a [`Kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindInfo {
    /// As in JSON, SARIF, `crashproof.toml` and the corpus.
    pub name: &'static str,
    /// How bad a finding of the kind is.
    pub severity: Severity,
    /// One sentence that says what the kind is.
    pub summary: &'static str,
    /// What stands beside the mark in the source excerpt.
    pub label: &'static str,
    /// Why it matters.
    pub why: &'static str,
    /// What to do, unless the finding knows better.
    pub help: &'static str,
}

impl KindInfo {
    /// The section of the documentation that explains the kind at length.
    pub fn docs(&self) -> String {
        format!("docs/findings.md#{}", self.name)
    }
}

impl Kind {
    /// All kinds, in the order of the documentation.
    pub const ALL: [Kind; 17] = [
        Kind::CrashOrder,
        Kind::CrashAtomicity,
        Kind::CrashDurability,
        Kind::MissingFlush,
        Kind::MissingFence,
        Kind::TxStoreNotSnapshotted,
        Kind::TxStoreOutside,
        Kind::TxSnapshotOverlap,
        Kind::RuleOrder,
        Kind::RuleTransaction,
        Kind::ExpectDurable,
        Kind::ExpectOrder,
        Kind::RedundantFlush,
        Kind::FlushUnmodified,
        Kind::RedundantFence,
        Kind::TxSnapshotTwice,
        Kind::TransientData,
    ];

    /// The name in reports, rules and JSON.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// How bad a finding of the kind is.
    pub fn severity(self) -> Severity {
        self.info().severity
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The fixed words about the kind.
    pub fn info(self) -> &'static KindInfo {
        match self {
            Kind::MissingFlush => &MISSING_FLUSH,
            Kind::MissingFence => &MISSING_FENCE,
            Kind::TxStoreNotSnapshotted => &TX_STORE_NOT_SNAPSHOTTED,
            Kind::TxStoreOutside => &TX_STORE_OUTSIDE,
            Kind::TxSnapshotOverlap => &TX_SNAPSHOT_OVERLAP,
            Kind::RuleOrder => &RULE_ORDER,
            Kind::RuleTransaction => &RULE_TRANSACTION,
            Kind::ExpectDurable => &EXPECT_DURABLE,
            Kind::ExpectOrder => &EXPECT_ORDER,
            Kind::RedundantFlush => &REDUNDANT_FLUSH,
            Kind::FlushUnmodified => &FLUSH_UNMODIFIED,
            Kind::RedundantFence => &REDUNDANT_FENCE,
            Kind::TxSnapshotTwice => &TX_SNAPSHOT_TWICE,
            Kind::TransientData => &TRANSIENT_DATA,
            Kind::CrashOrder => &CRASH_ORDER,
            Kind::CrashAtomicity => &CRASH_ATOMICITY,
            Kind::CrashDurability => &CRASH_DURABILITY,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl DurableByKind {
    /// What stands beside the mark of the event.
    pub fn label(self) -> &'static str {
        match self {
            DurableByKind::Fence => "had to be durable by this fence",
            DurableByKind::TxEnd => "had to be durable by the end of this transaction",
            DurableByKind::Unmap => "had to be durable before this unmapping",
            DurableByKind::Exit => "had to be durable before the program ended here",
        }
    }

    /// The same where there is no place to mark.
    pub fn note(self) -> &'static str {
        match self {
            DurableByKind::Fence => "it had to be durable by the next fence",
            DurableByKind::TxEnd => "it had to be durable by the end of the transaction",
            DurableByKind::Unmap => "it had to be durable before the file was unmapped",
            DurableByKind::Exit => "it had to be durable before the program ended",
        }
    }
}

static MISSING_FLUSH: KindInfo = KindInfo {
    name: "missing-flush",
    severity: Severity::Error,
    summary: "A store to persistent memory is never flushed.",
    label: "stored here, never flushed",
    why: "a store stays in the CPU cache until its line is flushed or happens to be evicted; if power fails before, it is \
          lost, even though later stores may have survived",
    help: "flush the stored range after the store (`_mm_clwb`, `pmem_flush`) and fence before anything relies on it \
           (`_mm_sfence`, `pmem_drain`); `pmem_persist` does both",
};

static MISSING_FENCE: KindInfo = KindInfo {
    name: "missing-fence",
    severity: Severity::Error,
    summary: "A store to persistent memory is flushed, or non-temporal, and no fence follows.",
    label: "stored here, not fenced",
    why: "a flush or a non-temporal store only starts the write to memory; until a fence of the same thread has waited for \
          it, a power failure can lose it, and later stores can overtake it",
    help: "fence in the thread that flushed (`_mm_sfence`, `pmem_drain`) before anything relies on the data",
};

static TX_STORE_NOT_SNAPSHOTTED: KindInfo = KindInfo {
    name: "tx-store-not-snapshotted",
    severity: Severity::Error,
    summary: "A store in a transaction changes memory that the transaction has not snapshotted.",
    label: "stored here, in no snapshot of the transaction",
    why: "when the transaction aborts or power fails within it, only what it snapshotted is rolled back; this store would stay",
    help: "snapshot the range before the store (`TX_ADD`, `pmemobj_tx_add_range`), or use `TX_SET`",
};

static TX_STORE_OUTSIDE: KindInfo = KindInfo {
    name: "tx-store-outside",
    severity: Severity::Error,
    summary: "A store outside any transaction changes memory that is otherwise changed in transactions.",
    label: "stored here, outside any transaction",
    why: "nothing rolls this store back, so a power failure can leave it half done beside data that is updated atomically",
    help: "make the store in a transaction that snapshots the range (`TX_BEGIN`, `TX_ADD`)",
};

static TX_SNAPSHOT_OVERLAP: KindInfo = KindInfo {
    name: "tx-snapshot-overlap",
    severity: Severity::Error,
    summary: "Two transactions that are open at the same time snapshot the same memory.",
    label: "in the undo log of another transaction, too",
    why: "each undo log holds what the other transaction made of the memory: when one of them aborts, or power fails, rolling it \
          back undoes what the other has committed, or brings back what it has undone",
    help: "let one transaction at a time change the memory: take a lock before the snapshot, and keep it until the outermost \
           transaction has ended (`TX_BEGIN_PARAM` with `TX_PARAM_MUTEX`)",
};

static RULE_ORDER: KindInfo = KindInfo {
    name: "rule-order",
    severity: Severity::Error,
    summary: "A `must-persist-before` rule of crashproof.toml is violated.",
    label: "stored here, while what must be durable first is not",
    why: "the rule says that recovery relies on this order; a power failure in between leaves the state that the rule excludes",
    help: "flush and fence what has to persist first, before this store",
};

static RULE_TRANSACTION: KindInfo = KindInfo {
    name: "rule-transaction",
    severity: Severity::Error,
    summary: "A `must-be-in-transaction` rule of crashproof.toml is violated.",
    label: "stored here, outside any transaction",
    why: "the rule says that this data is only changed in transactions; nothing rolls this store back after a power failure",
    help: "make the store in a transaction that snapshots the range (`TX_BEGIN`, `TX_ADD`)",
};

static EXPECT_DURABLE: KindInfo = KindInfo {
    name: "expect-durable",
    severity: Severity::Error,
    summary: "What an annotation of crashproof.h says is durable is not.",
    label: "has to be durable here, and is not",
    why: "the program says that it relies on the data from here on; a power failure now can lose it",
    help: "flush what was stored, and fence, before this point",
};

static EXPECT_ORDER: KindInfo = KindInfo {
    name: "expect-order",
    severity: Severity::Error,
    summary: "A store comes before what an annotation of crashproof.h says has to persist first is durable.",
    label: "stored here, while what must be durable first is not",
    why: "the annotation says that recovery relies on this order; a power failure in between leaves the state that it excludes",
    help: "flush and fence what has to persist first, before this store",
};

static REDUNDANT_FLUSH: KindInfo = KindInfo {
    name: "redundant-flush",
    severity: Severity::Warning,
    summary: "A flush finds nothing in its line that is not flushed already.",
    label: "nothing left to flush in this line",
    why: "the flush changes nothing about what survives a power failure; it costs time, and may evict the line from the cache",
    help: "remove the flush, or flush once after the last store to the line",
};

static FLUSH_UNMODIFIED: KindInfo = KindInfo {
    name: "flush-unmodified",
    severity: Severity::Warning,
    summary: "A flush of a line that was not stored to since it was mapped.",
    label: "this line was never stored to",
    why: "the flush changes nothing about what survives a power failure; often the range is too long or the wrong one is flushed",
    help: "flush the lines that were stored to, and only those; check the address and the length",
};

static REDUNDANT_FENCE: KindInfo = KindInfo {
    name: "redundant-fence",
    severity: Severity::Warning,
    summary: "A fence of a thread that has no flush and no non-temporal store outstanding.",
    label: "nothing outstanding in this thread",
    why: "the fence waits for flushes and non-temporal stores of its own thread, and there are none; a fence does not wait for \
          those of another thread",
    help: "remove the fence; if it was meant for another thread's flush, fence in that thread",
};

static TX_SNAPSHOT_TWICE: KindInfo = KindInfo {
    name: "tx-snapshot-twice",
    severity: Severity::Warning,
    summary: "A range is snapshotted twice in one transaction.",
    label: "in the undo log already",
    why: "the range is in the undo log already; asking again saves nothing and costs a search in the log",
    help: "snapshot each range once in a transaction, at the outermost place that knows it will change",
};

static TRANSIENT_DATA: KindInfo = KindInfo {
    name: "transient-data",
    severity: Severity::Note,
    summary: "Volatile data is kept in persistent memory.",
    label: "volatile data in persistent memory",
    why: "this location is used as volatile data is, and nothing persists it: recovery cannot rely on it, may mistake it for data, and \
          every write-back of its line wears and slows persistent memory",
    help: "keep it in ordinary memory; if it has to survive a power failure, flush and fence each change",
};

static CRASH_ORDER: KindInfo = KindInfo {
    name: "crash-order",
    severity: Severity::Error,
    summary: "Recovery fails after a crash in which a later update had persisted before an earlier one.",
    label: "not persisted when power failed",
    why: "until they are flushed and fenced, stores to different cache lines reach persistent memory in any order; recovery \
          relies on an order that the program does not enforce",
    help: "flush and fence what has to persist first before storing what depends on it",
};

static CRASH_ATOMICITY: KindInfo = KindInfo {
    name: "crash-atomicity",
    severity: Severity::Error,
    summary: "Recovery fails after a crash between updates that have to be one.",
    label: "not persisted when power failed",
    why: "whichever of the updates persists first, a crash before the other leaves a state that recovery rejects; at most eight \
          aligned bytes persist at once",
    help: "make the updates one: a transaction or log that recovery rolls back or replays, or a copy that is published by \
           a single eight-byte store",
};

static CRASH_DURABILITY: KindInfo = KindInfo {
    name: "crash-durability",
    severity: Severity::Error,
    summary: "What the program had acknowledged in its output is lost after a crash.",
    label: "not persisted when the program had acknowledged it",
    why: "the program told the outside world that the update was done, and a power failure after that can still lose it",
    help: "flush and fence the update before acknowledging it",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(Kind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(Kind::from_name("no-such-kind"), None);
    }

    #[test]
    fn all_is_ordered_by_severity() {
        assert!(Kind::ALL.is_sorted_by_key(|kind| kind.severity()));
    }
}
