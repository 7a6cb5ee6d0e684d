//! The HTML report in a real browser: what a user sees and does, with mouse and keyboard, wide and narrow, light and dark.
//! Every test also sees that nothing is written to the console and nothing is fetched. Pictures of the pages are left in
//! `target/tmp/html-report`.

use std::path::PathBuf;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};

mod everybody;
mod findings;
#[allow(dead_code, reason = "it is a program by itself, too")]
#[path = "../../examples/html_fixture.rs"]
mod html_fixture;
mod pictures;
mod tab;

use tab::{Driver, Tab};

const WIDE: u32 = 1280;
const NARROW: u32 = 400;

/// What it is called, and what it does.
type Test = (&'static str, fn(&World));

fn main() {
    let arguments = Arguments::from_args();
    let tests: [Test; 17] = [
        ("summary", findings::summary),
        ("filter_and_sort", findings::filter_and_sort),
        ("search", findings::search),
        ("expand_and_collapse", findings::expand_and_collapse),
        ("deep_link", findings::deep_link),
        ("timeline_by_buttons", pictures::timeline_by_buttons),
        ("timeline_by_keyboard", pictures::timeline_by_keyboard),
        ("graph_and_charts", pictures::graph_and_charts),
        ("traffic_is_sorted", pictures::traffic_is_sorted),
        ("several_runs", findings::several_runs),
        ("thousand_findings", findings::thousand_findings),
        ("dark_and_light", everybody::dark_and_light),
        ("wide_and_narrow", everybody::wide_and_narrow),
        ("keyboard_only", everybody::keyboard_only),
        ("for_screen_readers", everybody::for_screen_readers),
        ("contrast", everybody::contrast),
        ("printed_and_without_script", everybody::printed_and_without_script),
    ];
    if arguments.list {
        let trials = tests.map(|(name, _)| Trial::test(name, || Ok(())));
        libtest_mimic::run(&arguments, trials.into()).exit();
    }
    let world = Arc::new(World::new());
    let trials = tests.map(|(name, test)| {
        let world = Arc::clone(&world);
        Trial::test(name, move || {
            test(&world);
            Ok(())
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.into());
    drop(Arc::into_inner(world));
    conclusion.exit();
}

/// The pages, and what shows them.
struct World {
    driver: Driver,
    pages: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let pages = tempfile::tempdir().expect("a folder for the pages");
        html_fixture::write_all(pages.path()).expect("the pages can be written");
        World {
            driver: Driver::start(),
            pages,
        }
    }

    fn page(&self, name: &str) -> PathBuf {
        self.pages.path().join(name).with_extension("html")
    }

    fn open(&self, name: &str) -> Tab {
        Tab::open(&self.driver, &self.page(name), "", WIDE)
    }

    fn open_at(&self, name: &str, fragment: &str) -> Tab {
        Tab::open(&self.driver, &self.page(name), fragment, WIDE)
    }
}
