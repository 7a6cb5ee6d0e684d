//! The summary, and the list of findings: filter, search, sort, details.

use crate::World;
use crate::tab::Tab;

pub(crate) fn summary(world: &World) {
    let tab = world.open("check");
    assert_eq!(tab.text("h1"), "2 errors, 1 warning, 1 note (1 known)");
    assert!(tab.text("title").contains("crashproof"));
    let kinds = tab.texts(".pair > div:first-child .name .mono");
    assert_eq!(
        kinds,
        [
            "missing-flush",
            "missing-fence",
            "redundant-flush",
            "redundant-fence",
            "transient-data"
        ]
    );
    let files = tab.texts(".pair > div:last-child .name .mono");
    assert_eq!(files, ["src/list.c", "src/pm.h", "src/gone.c"]);
    assert_eq!(
        tab.texts(".pair > div:last-child .number"),
        ["3 findings", "1 finding", "1 finding"]
    );
    // A count is a way to what it counts.
    tab.click(".pair > div:last-child li:nth-child(2) button");
    assert_eq!(listed(&tab), ["#3"]);
    assert_eq!(tab.run("return document.activeElement.id"), "filter-file");
    tab.close();
}

pub(crate) fn filter_and_sort(world: &World) {
    let tab = world.open("check");
    assert_eq!(listed(&tab), ["#1", "#2", "#3", "#4", "#5"]);
    tab.choose("#filter-severity", "warning");
    assert_eq!(listed(&tab), ["#3", "#4"]);
    assert_eq!(tab.text(".shown"), "2 of 5 findings");
    tab.choose("#filter-known", "known");
    assert_eq!(listed(&tab), ["#3"]);
    tab.choose("#filter-kind", "missing-flush");
    assert_eq!(listed(&tab), [""; 0]);
    assert_eq!(tab.texts(".empty").len(), 1);
    tab.click(".empty button");
    assert_eq!(listed(&tab), ["#1", "#2", "#3", "#4", "#5"]);
    tab.choose("#filter-file", "src/gone.c");
    assert_eq!(listed(&tab), ["#4"]);
    tab.click(".tools .reset");
    tab.choose("#sort", "file");
    assert_eq!(listed(&tab), ["#4", "#1", "#2", "#5", "#3"]);
    tab.choose("#sort", "kind");
    assert_eq!(listed(&tab), ["#2", "#1", "#4", "#3", "#5"]);
    tab.close();
}

pub(crate) fn search(world: &World) {
    let tab = world.open("check");
    tab.click("#search");
    tab.press("NEVER 0x88");
    assert_eq!(listed(&tab), ["#1"]);
    tab.run("document.querySelector('#search').select()");
    // A function on the call path, not in the message.
    tab.press("drain_all");
    assert_eq!(listed(&tab), ["#4"]);
    tab.run("document.querySelector('#search').select()");
    tab.press("no such thing");
    assert_eq!(listed(&tab), [""; 0]);
    tab.close();
}

pub(crate) fn expand_and_collapse(world: &World) {
    let tab = world.open("check");
    assert_eq!(
        tab.run("return document.querySelectorAll('.detail *').length"),
        0,
        "nothing is made in advance"
    );
    let button = "#finding-1 h3 button";
    tab.click(button);
    assert_eq!(
        tab.run("return document.querySelector('#finding-1 h3 button').ariaExpanded"),
        "true"
    );
    // The store and the end of the program, in the source; nothing of it is markup.
    assert_eq!(
        tab.texts("#finding-1 .line.primary code"),
        ["\tnode->value = key * 7; // \"ü\" and 'x'"]
    );
    assert_eq!(tab.texts("#finding-1 .line.primary .span"), ["node->value = key * 7"]);
    assert_eq!(tab.texts("#finding-1 .role"), ["store", "durable by"]);
    assert!(tab.texts("#finding-1 .t-type").contains(&"uint64_t".to_owned()));
    assert!(
        tab.texts("#finding-1 .t-comment")
            .contains(&"// \"ü\" and 'x'".to_owned())
    );
    assert_eq!(tab.texts("#finding-1 .frames code"), ["insert", "main"]);
    assert_eq!(tab.texts("#finding-1 .diff .add"), ["+\tpm_flush(&node->value);"]);
    assert!(tab.text("#finding-1 .help").contains("pmem_persist"));
    tab.keep_picture("check-wide");
    tab.click(button);
    assert_eq!(tab.texts("#finding-1 .detail"), [""; 0]);
    tab.click(".above button");
    assert_eq!(tab.texts(".detail").len(), 5);
    // A place whose source is not there is named.
    assert!(tab.text("#finding-4 .source").contains("src/gone.c:12"));
    assert!(tab.text("#finding-4 .source").contains("its source is not here"));
    tab.close();
}

pub(crate) fn deep_link(world: &World) {
    let tab = world.open_at("check", "#finding-3");
    assert_eq!(
        tab.run("return document.querySelector('#finding-3 h3 button').ariaExpanded"),
        "true"
    );
    tab.wait("document.activeElement.closest('.finding')?.id === 'finding-3'");
    // Also to what a filter hides.
    tab.choose("#filter-kind", "missing-flush");
    tab.run("location.hash = '#finding-2'");
    tab.wait("document.querySelector('#finding-2.open')");
    assert_eq!(listed(&tab).len(), 5);
    tab.run("location.hash = '#finding-99'");
    tab.close();
}

pub(crate) fn several_runs(world: &World) {
    let tab = world.open("test");
    assert_eq!(tab.text("h1"), "4 errors, 1 warning, 1 note (1 known); 1 run failed");
    assert!(tab.texts(".lead").iter().any(|lead| lead.contains("cannot run ./hash")));
    tab.choose("#filter-run", "1");
    assert_eq!(listed(&tab), ["#6", "#7"]);
    tab.close();
    let tab = world.open("empty");
    assert_eq!(tab.text("h1"), "No findings");
    tab.keep_picture("empty-wide");
    tab.close();
}

pub(crate) fn thousand_findings(world: &World) {
    let file = world.page("thousand");
    let size = file.metadata().expect("the page is there").len();
    assert!(size < 2_000_000, "{size} bytes");
    let tab = world.open("thousand");
    assert_eq!(tab.text(".shown"), "1,000 findings, the first 100 are listed");
    assert_eq!(listed(&tab).len(), 100);
    let elements = tab.run("return document.querySelectorAll('*').length");
    assert!(
        elements.as_u64().is_some_and(|elements| elements < 5000),
        "{elements} elements"
    );
    tab.click("button.more");
    assert_eq!(listed(&tab).len(), 200);
    tab.run("document.querySelector('#search').focus()");
    tab.press("pool3.pm function_77 ");
    tab.wait("!document.querySelector('.shown').textContent.startsWith('1,000')");
    assert!(listed(&tab).len() < 100);
    tab.run("location.hash = '#finding-777'");
    tab.wait("document.querySelector('#finding-777.open .frames')");
    let seen = "const box = document.querySelector('#finding-777 h3').getBoundingClientRect(); return box.top >= 0 && box.bottom <= innerHeight";
    assert_eq!(tab.run(seen), true);
    tab.keep_picture("thousand-wide");
    tab.close();
}

/// Numbers of the findings that are listed, in their order.
pub(crate) fn listed(tab: &Tab) -> Vec<String> {
    tab.texts(".finding .anchor")
}
