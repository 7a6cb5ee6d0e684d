//! Repeated iterations, against the search over the whole.

use super::*;

/// The paper's figure 2 as a trace: `valid` says for each iteration which branch it takes.
fn figure_2(valid: &[bool]) -> String {
    let mut ops = String::new();
    let mut properties = String::new();
    for (n, &valid) in valid.iter().enumerate() {
        let at = 0x1000 + 192 * n;
        ops += &format!("store counter{n} 0x40 4\n");
        if valid {
            ops += &format!("store name{n} {at} 64\nstore addr{n} {} 64\n", at + 64);
            properties += &format!("require name{n} before valid{n}\nrequire addr{n} before valid{n}\n");
        }
        ops += &format!("store valid{n} {} 1\nflush valid{n}\n", at + 128);
        if valid {
            ops += &format!("flush name{n}\nflush addr{n}\n");
        }
        ops += "fence\n";
        properties += &format!("require valid{n} before counter{n}\nrequire durable counter{n}\n");
    }
    ops + &properties
}

#[test]
fn figure_2_written_out_is_repaired_as_figure_3() {
    let (least, text) = repaired(&figure_2(&[true; 32]));
    assert_eq!(least.least, Least::InParts { parts: 32, shapes: 1 });
    assert_eq!(counts(&least), [32, 64, 32, 64]);
    let last = "store name31 0x2740 64\nflush name31  # moved\nstore addr31 0x2780 64\nflush addr31  # moved\nfence  # added\n\
                store valid31 0x27c0 1\nflush valid31\nfence\n\
                store counter31 0x40 4  # moved\nflush counter31  # added\nfence  # added\n";
    assert!(text.contains(last), "{text}");
}

#[test]
fn both_branches_of_figure_2() {
    let valid: Vec<bool> = (0..32).map(|n| n % 3 != 1).collect();
    let (least, text) = repaired(&figure_2(&valid));
    assert_eq!(least.least, Least::InParts { parts: 32, shapes: 2 }, "{text}");
    // Of the else branch, only the counter moves.
    assert_eq!(least.stores_moved, 32);
    assert!(
        text.contains(
            "store valid1 0x1140 1\nflush valid1\nfence\nstore counter1 0x40 4  # moved\nflush counter1  # added\nfence  # added\n"
        ),
        "{text}"
    );
}

/// The iterations of a loop, one after the other, each in lines of its own.
fn repeated(one: &Litmus, count: usize, ordered: bool) -> Litmus {
    let mut all = Litmus {
        threads: one.threads.clone(),
        ..Litmus::default()
    };
    let stores = one.stores.len();
    for n in 0..count {
        let shift = |range: AddressRange| AddressRange {
            start: range.start + 0x1000 * n as u64,
            ..range
        };
        let store = |id: usize| id + n * stores;
        all.stores.extend(one.stores.iter().map(|own| Store {
            name: format!("{}_{n}", own.name),
            at: shift(own.at),
            kind: own.kind,
        }));
        all.ops.extend(one.ops.iter().map(|op| Op {
            thread: op.thread,
            action: match op.action {
                Action::Store(id) => Action::Store(store(id)),
                Action::Flush(flush) => Action::Flush(Flush {
                    names: flush.names.map(store),
                    at: shift(flush.at),
                    ..flush
                }),
                ref fence => fence.clone(),
            },
        }));
        all.properties
            .extend(one.properties.iter().map(|property| match *property {
                Property::Durable(id) => Property::Durable(store(id)),
                Property::Before(first, second) => Property::Before(store(first), store(second)),
            }));
        if ordered && n > 0 {
            // All of an iteration is persistent before the next begins.
            for (first, second) in (0..stores).flat_map(|first| (0..stores).map(move |second| (first, second))) {
                all.properties
                    .push(Property::Before(first + (n - 1) * stores, store(second)));
            }
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_change_in_each_iteration_is_sound_and_no_less_than_the_least(one in litmus(1..4, 0..4, 1), count in 2..4usize) {
        let all = repeated(&one, count, false);
        if let (Some(found), Ok(least)) = (crate::repair::in_parts(&all, LIMIT), repair(&all, LIMIT)) {
            // What is found is checked by the model before it is given.
            prop_assert!(counts(&least) <= counts(&found), "{}", all);
            let is_alike = matches!(found.least, Least::InParts { parts, shapes } if shapes < parts);
            prop_assert!(is_alike, "{:?} {}", found.least, all);
        }
    }

    #[test]
    fn iterations_that_are_ordered_are_each_changed_as_one(one in litmus(1..4, 0..4, 1)) {
        // Everything is durable, so that it makes no difference where an iteration ends.
        let mut one = one;
        one.properties.extend((0..one.stores.len()).map(Property::Durable));
        let all = repeated(&one, 2, true);
        if let (Ok(of_one), Some(found)) = (repair(&one, LIMIT), crate::repair::in_parts(&all, LIMIT)) {
            // It may also be cut within an iteration.
            if found.least == (Least::InParts { parts: 2, shapes: 1 }) {
                prop_assert_eq!(counts(&found), counts(&of_one).map(|count| 2 * count), "{}", all);
            }
        }
    }
}
