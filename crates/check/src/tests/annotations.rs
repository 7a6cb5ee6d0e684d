//! What a program says of itself, and the rules of its author.

use crashproof_finding::Kind;
use crashproof_trace::*;

use super::*;

const A: u64 = 0x100;
const B: u64 = 0x200;

/// Eight bytes of the pool.
fn range(offset: u64) -> MemoryRange {
    MemoryRange {
        address: POOL_ADDRESS + offset,
        len: 8,
    }
}

fn order(b: &mut TraceBuilder, place: u64) -> &mut TraceBuilder {
    let [before, after] = [A, B].map(range);
    let backwards = false;
    b.annotation(
        T0,
        place,
        Annotation::ExpectOrder {
            before,
            after,
            backwards,
        },
    )
}

fn persist(b: &mut TraceBuilder, place: u64, offset: u64) {
    b.store(T0, place, offset, 8).flush(T0, 90, offset).sfence(T0, 91);
}

fn begin(b: &mut TraceBuilder) {
    b.annotation(T0, 50, Annotation::OperationBegin { name: "put" });
}

fn end(b: &mut TraceBuilder) {
    b.annotation(T0, 51, Annotation::OperationEnd { name: "put" });
}

#[test]
fn the_second_range_is_stored_before_the_first() {
    let mut b = TraceBuilder::new();
    order(&mut b, 1);
    persist(&mut b, 2, B);
    persist(&mut b, 3, A);
    let findings = b.findings();
    assert_eq!(summary(&findings), [(Kind::ExpectOrder, 2, 1)]);
    assert_eq!(findings[0].related[0].stack[0].address, 3);
}

#[test]
fn what_ends_an_order() {
    let output = EventKind::Output { fd: 1, data: b"done\n" };
    type End = (&'static str, fn(&mut TraceBuilder));
    let ends: [End; 3] = [
        ("said anew", |b| _ = order(b, 1)),
        ("the end of the operation", end),
        ("another thread", |b| _ = b.thread(T1, 0)),
    ];
    for (what, ends) in ends {
        let mut b = TraceBuilder::new();
        begin(&mut b);
        order(&mut b, 1);
        persist(&mut b, 2, B);
        ends(&mut b);
        if what == "another thread" {
            b.store(T1, 3, A, 8).flush(T1, 4, A).sfence(T1, 5);
        } else {
            persist(&mut b, 3, A);
        }
        assert_eq!(b.summary(), [], "{what}");
    }
    let mut b = TraceBuilder::new();
    order(&mut b, 1);
    persist(&mut b, 2, B);
    b.event(T0, 0, output);
    persist(&mut b, 3, A);
    assert_eq!(b.summary(), [], "a line");
    let mut b = TraceBuilder::new();
    order(&mut b, 1);
    persist(&mut b, 3, A);
    persist(&mut b, 2, B);
    persist(&mut b, 4, A);
    assert_eq!(b.summary(), [], "it was stored to before");
}

const RULE: &str = r#"
    [[rule]]
    kind = "must-persist-before"
    before = "pool@0x100-0x107"
    after = "pool@0x200-0x207"
"#;

#[test]
fn a_rule_knows_the_order_within_an_operation() {
    let mut b = TraceBuilder::new();
    begin(&mut b);
    persist(&mut b, 2, B);
    persist(&mut b, 3, A);
    end(&mut b);
    let findings = b.report(Model::Px86, RULE).findings;
    assert_eq!(summary(&findings), [(Kind::RuleOrder, 2, 1)]);
    assert_eq!(findings[0].related[0].stack[0].address, 3);
    for operations in [0, 2] {
        let mut b = TraceBuilder::new();
        if operations > 0 {
            begin(&mut b);
        }
        persist(&mut b, 2, B);
        if operations > 0 {
            end(&mut b);
            begin(&mut b);
        }
        persist(&mut b, 3, A);
        persist(&mut b, 2, B);
        persist(&mut b, 3, A);
        if operations > 0 {
            end(&mut b);
        }
        assert_eq!(summary(&b.report(Model::Px86, RULE).findings), [], "{operations}");
    }
}

#[test]
fn a_line_of_a_driver_ends_an_operation() {
    for lines in [false, true] {
        let mut b = TraceBuilder::new();
        let line = || EventKind::Output { fd: 1, data: b"done\n" };
        persist(&mut b, 2, B);
        persist(&mut b, 3, A);
        b.event(T0, 0, line());
        persist(&mut b, 2, B);
        b.event(T0, 0, line());
        persist(&mut b, 3, A);
        b.event(T0, 0, line());
        persist(&mut b, 4, B);
        persist(&mut b, 5, A);
        let operations = if lines { "operations = \"lines\"" } else { "" };
        let expected: &[_] = if lines { &[(Kind::RuleOrder, 4, 1)] } else { &[] };
        let rule = format!("{RULE}\n{operations}\n");
        assert_eq!(summary(&b.report(Model::Px86, &rule).findings), expected);
    }
}

#[test]
fn the_end_of_an_operation_names_each_store_and_no_lock() {
    let exchange = StoreFlags {
        locked: true,
        exchange: true,
        ..StoreFlags::default()
    };
    let mut b = TraceBuilder::new();
    for round in 0..3 {
        begin(&mut b);
        b.value(T0, 1, 0, 1, exchange);
        persist(&mut b, 3, A);
        if round > 0 {
            b.store(T0, 10 + round, B, 8);
        }
        b.value(T0, 2, 0, 0, StoreFlags::default());
        end(&mut b);
        b.flush(T0, 92, B).sfence(T0, 93);
    }
    let findings = b.findings();
    let durable: Vec<&Finding> = findings.iter().filter(|f| f.kind == Kind::ExpectDurable).collect();
    assert_eq!(durable.len(), 1, "{findings:?}");
    assert_eq!(durable[0].count, 2);
    let places: Vec<u64> = durable[0]
        .related
        .iter()
        .map(|related| related.stack[0].address)
        .collect();
    assert_eq!(places, [11, 12]);
}
