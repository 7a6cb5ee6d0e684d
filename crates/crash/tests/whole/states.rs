//! The states that `exhaustive` tests are those of the definition, no more and no fewer.

use crate::common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::*;
use crashproof_crash::{CampaignOptions, StrategyKind};
use crashproof_model::Model;
use proptest::prelude::*;

/// The second store is never there without the first.
#[test]
fn an_edge_between_lines_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let store = |at, nontemporal| Step {
        thread: 0,
        stack: 0,
        action: Action::Store {
            at,
            data: vec![1],
            nontemporal,
            locked: false,
        },
    };
    write_trace(&trace, &[], &[store(0, true), store(128, false), store(136, false)]);
    let contents = |edges| -> BTreeSet<[u8; 3]> {
        let units = Units { edges, size: None };
        let options = tied(units, options(StrategyKind::Exhaustive));
        let campaign = run(&trace, &options, &Simulated::new(Arc::new(|_, _| true)), 1);
        campaign
            .images()
            .iter()
            .map(|image| [0, 128, 136].map(|at| image.content[at]))
            .collect()
    };
    assert_eq!(contents(None).len(), 6);
    let both = [0, 1].map(|number| contents(Some(number)));
    assert!(
        both.iter()
            .any(|contents| *contents == BTreeSet::from([[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]]))
    );
}

/// A store to another line of the page by another thread, while an msync of the page is under way.
#[test]
fn a_sync_does_not_guarantee_what_is_stored_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let step = |thread, action| Step {
        thread,
        stack: 0,
        action,
    };
    let store = |at| Action::Store {
        at,
        data: vec![1],
        nontemporal: false,
        locked: false,
    };
    let contents = |meanwhile: &[Step]| -> BTreeSet<[u8; 2]> {
        let synced = [step(0, store(0)), step(1, Action::Begin)];
        let after = [step(1, Action::Sync { page: 0 }), step(1, Action::Output { byte: 1 })];
        write_trace(&trace, &[], &[&synced[..], meanwhile, &after[..]].concat());
        let campaign = run(
            &trace,
            &options(StrategyKind::Exhaustive),
            &Simulated::new(Arc::new(|_, _| true)),
            1,
        );
        let after = campaign.seen.iter().filter(|seen| !seen.output.is_empty());
        after.map(|seen| [0, 128].map(|at| seen.image.content[at])).collect()
    };
    assert_eq!(contents(&[]), BTreeSet::from([[1, 0]]));
    assert_eq!(contents(&[step(0, store(128))]), BTreeSet::from([[1, 0], [1, 1]]));
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn exhaustive_tests_what_is_allowed(
        initial in prop::collection::vec(0..3u8, 0..200),
        steps in steps(true, 14),
        tear in any::<bool>(),
        units in units(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        write_trace(&trace, &initial, &fitting(units, steps));
        for model in [Model::Px86, Model::Eadr] {
            let options = CampaignOptions { model, tear, ..tied(units, options(StrategyKind::Exhaustive)) };
            let campaign = run(&trace, &options, &Simulated::new(Arc::new(|_, _| true)), 1);
            prop_assert_eq!(campaign.images(), allowed(&trace, units, &options), "{:?}", model);
        }
    }

    #[test]
    fn and_with_stores_reordered_in_their_lines(steps in steps(false, 8), units in units()) {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        write_trace(&trace, &[], &fitting(units, steps));
        let options = CampaignOptions { reorder_in_line: true, ..tied(units, options(StrategyKind::Exhaustive)) };
        let campaign = run(&trace, &options, &Simulated::new(Arc::new(|_, _| true)), 1);
        prop_assert_eq!(campaign.images(), allowed(&trace, units, &options));
    }

    #[test]
    fn each_state_is_tested_once_and_counted(steps in steps(true, 14), units in units()) {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        write_trace(&trace, &[], &fitting(units, steps));
        let options = tied(units, options(StrategyKind::Exhaustive));
        let campaign = run(&trace, &options, &Simulated::new(Arc::new(|_, _| true)), 1);
        let distinct: BTreeSet<_> = campaign.seen.iter().collect();
        prop_assert_eq!(distinct.len(), campaign.seen.len());
        let stats = &campaign.outcome.stats;
        prop_assert_eq!(stats.states_tested, campaign.seen.len() as u64);
        prop_assert_eq!(stats.states_tested + stats.states_pruned, stats.states_total);
        let survey = crashproof_crash::survey(&opened(&trace), &options).unwrap();
        prop_assert_eq!(survey.states, stats.states_total as u128);
        prop_assert!(!stats.cut_short);
    }

    #[test]
    fn the_image_of_a_failure_can_be_made_again(steps in steps(true, 12), units in units()) {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        write_trace(&trace, &[1, 2], &fitting(units, steps));
        for model in [Model::Px86, Model::Eadr] {
            let options = CampaignOptions { model, ..tied(units, options(StrategyKind::Exhaustive)) };
            let failing = Simulated::new(Arc::new(|_, _| false));
            let campaign = run(&trace, &options, &failing, 1);
            let mut made = BTreeSet::new();
            for failure in &campaign.failures {
                let mut executor = failing.clone();
                let point = failure.point;
                let output = crashproof_crash::make_image(&opened(&trace), &options, point, &failure.persisted, &mut executor);
                prop_assert_eq!(output.unwrap().len() as u64, failure.output);
                made.insert(executor.file);
            }
            prop_assert_eq!(&made, &campaign.images(), "{:?}", model);
            prop_assert_eq!(campaign.seen.len(), 2 * campaign.failures.len(), "failures are confirmed");
        }
    }
}
