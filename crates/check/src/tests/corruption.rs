//! Whatever a trace says, the checker does not panic.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn odd_events_are_survived(
        steps in prop::collection::vec((0..9u8, 0..2u32, any::<u64>(), any::<u64>()), 0..60)
    ) {
        let mut b = TraceBuilder::new();
        b.thread(T1, 0);
        for (kind, thread, a, len) in steps {
            let offset = a % (1 << 62);
            let len = len % (1 << 61);
            let kind = match kind {
                0 => EventKind::Unmap { file: POOL, offset, len },
                1 => EventKind::Map { file: POOL, address: a, offset, len, writable: true },
                2 => EventKind::Resize { file: POOL, size: offset },
                3 => EventKind::Sync { file: POOL, offset, len },
                4 => EventKind::Request {
                    request: [Request::SetClean, Request::TxAdd, Request::TxRemove, Request::TxIgnore][a as usize % 4],
                    transaction: a,
                    range: Some((PmAddress { file: POOL, offset }, len)),
                },
                5 => EventKind::Call { name: "pmemobj_tx_add_range_direct", arguments: [a, len, a, len, a, len] },
                6 => EventKind::Request { request: Request::TxBegin, transaction: 0, range: None },
                7 => EventKind::Request { request: Request::TxEnd, transaction: 0, range: None },
                _ => {
                    let at = PmAddress { file: POOL, offset };
                    EventKind::Store { at, data: &[1; 64][..len as usize % 65], flags: StoreFlags::default() }
                }
            };
            b.event(thread, a % 16, kind);
        }
        b.findings();
    }
}
