//! The strategy `representative` on random traces: every state that it tests is allowed, and a program that is wrong in one
//! place is found wrong.

use crate::common;

use std::sync::Arc;

use common::*;
use crashproof_crash::{CampaignOptions, StrategyKind};
use crashproof_model::Model;
use crashproof_trace::FlushKind;
use proptest::prelude::*;

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn only_allowed_states_are_tested(
        table in prop::collection::vec(any::<u8>(), 1..9),
        steps in steps(true, 14),
        model in prop_oneof![3 => Just(Model::Px86), 1 => Just(Model::Eadr)],
        tear in any::<bool>(),
        reorder_in_line in prop::bool::weighted(0.2),
        joint in any::<bool>(),
        workers in 1..3usize,
        units in units(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        write_trace(&trace, &[1], &fitting(units, steps));
        let options = CampaignOptions {
            model,
            tear,
            reorder_in_line,
            joint,
            ..tied(units, options(StrategyKind::Representative))
        };
        let campaign = run(&trace, &options, &Simulated::new(wandering(table)), workers);
        let allowed = allowed(&trace, units, &options);
        for image in campaign.images() {
            prop_assert!(allowed.contains(&image), "{:?}", image);
        }
        let stats = &campaign.outcome.stats;
        prop_assert!(!stats.cut_short);
        prop_assert_eq!(stats.points_reached, stats.points_total);
        prop_assert!(stats.behaviours.is_some_and(|behaviours| joint || behaviours.joint == 0));
    }
}

fn store(at: u64, value: u8, stack: u8) -> Step {
    let data = vec![value; 8];
    let action = Action::Store {
        at,
        data,
        nontemporal: false,
        locked: false,
    };
    Step {
        thread: 0,
        stack,
        action,
    }
}

fn step(action: Action) -> Step {
    Step {
        thread: 0,
        stack: 9,
        action,
    }
}

fn persist(lines: &[u64]) -> Vec<Step> {
    let flush = |&at| {
        step(Action::Flush {
            at,
            kind: FlushKind::Clwb,
        })
    };
    lines.iter().map(flush).chain([step(Action::Fence)]).collect()
}

/// Two hundred times data and a flag that says that it is there; in the last but one the flag does not wait for the data.
fn updates(wrong: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    for n in 1..=200u8 {
        steps.push(store(0, n, 0));
        if wrong && n == 199 {
            steps.push(store(128, n, 1));
            steps.extend(persist(&[0, 128]));
        } else {
            steps.extend(persist(&[0]));
            steps.push(store(128, n, 1));
            steps.extend(persist(&[128]));
        }
    }
    steps
}

/// In a model with edges the flag persists after its data in two of three updates; the third is not like them.
#[test]
fn updates_that_no_edge_orders_are_told_from_those_that_are_ordered() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let update = |n: u8| {
        let mut steps = vec![store(0, n, 0), store(128, n, 1)];
        if let Action::Store { nontemporal, .. } = &mut steps[0].action {
            *nontemporal = true;
        }
        steps.extend(persist(&[128]));
        steps
    };
    let steps: Vec<Step> = (1..=60).flat_map(update).collect();
    write_trace(&trace, &[], &steps);
    let recovery: Recovery = Arc::new(|view, _| view.read(128) <= view.read(0));
    for number in 0..3 {
        let units = Units {
            edges: Some(number),
            size: None,
        };
        let [few, all] = [StrategyKind::Representative, StrategyKind::Exhaustive].map(|strategy| {
            let options = tied(units, options(strategy));
            run(&trace, &options, &Simulated::new(recovery.clone()), 1)
        });
        assert_eq!(all.failures.len(), 20, "one of three");
        assert!(!few.failures.is_empty());
        let tested = few.outcome.stats.states_tested;
        assert!(tested <= 20, "{tested} of {}", all.outcome.stats.states_tested);
    }
}

#[test]
fn one_wrong_update_among_many_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let recovery: Recovery = Arc::new(|view, _| view.read(128) <= view.read(0));
    for (wrong, strategy) in [
        (true, StrategyKind::Representative),
        (false, StrategyKind::Representative),
    ] {
        write_trace(&trace, &[], &updates(wrong));
        let campaign = run(&trace, &options(strategy), &Simulated::new(recovery.clone()), 1);
        assert_eq!(!campaign.failures.is_empty(), wrong);
        let stats = campaign.outcome.stats;
        let behaviours = stats.behaviours.unwrap();
        assert!(behaviours.single >= 200, "{behaviours:?}");
        assert!(
            behaviours.single_groups + behaviours.joint_groups <= 6,
            "{behaviours:?}"
        );
        assert!(stats.states_tested <= 20, "{stats:?}");
        assert!(
            stats.points_total <= 20,
            "points of the representatives, not of the run: {stats:?}"
        );
    }
}
