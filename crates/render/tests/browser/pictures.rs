//! Timeline, graph, charts and traffic.

use fantoccini::key::Key;
use serde_json::{Value, json};

use crate::World;
use crate::tab::Tab;

pub(crate) fn timeline_by_buttons(world: &World) {
    let tab = world.open_at("crash", "#finding-1");
    let said = || tab.text(".said");
    let step = |name: &str| tab.click(&format!(".stepper button[aria-label='{name} step']"));
    assert!(said().starts_with("Power fails here"), "{}", said());
    assert_eq!(tab.texts(".now-states .lost").len(), 2);
    assert_eq!(tab.texts(".now-states .survived"), ["0x0 ✓ survived"]);
    step("First");
    assert!(
        said().contains("Store of 8 bytes at 0x8 of pool.pm by insert, src/list.c:24."),
        "{}",
        said()
    );
    assert!(said().contains("Line 0x0 is now dirty."), "{}", said());
    assert_eq!(
        tab.texts(".now-states li"),
        ["0x0 dirty", "0x40 persistent", "0x80 persistent"]
    );
    step("Next");
    assert!(
        said().contains("Flush of line 0x0") && said().contains("now pending"),
        "{}",
        said()
    );
    // The source shows where the step is.
    assert_eq!(tab.texts(".line.now code"), ["\tpm_flush(&list->count);"]);
    step("Next");
    assert!(
        said().contains("Fence") && said().contains("now persistent"),
        "{}",
        said()
    );
    step("Last");
    assert!(said().starts_with("Not reached"), "{}", said());
    // There is no step after the last one.
    step("Next");
    assert_eq!(tab.text(".stepper .count"), "Step 14 of 14");
    step("Previous");
    assert_eq!(tab.text(".stepper .count"), "Step 13 of 14");
    tab.run("[...document.querySelectorAll('.stepper button')].find((one) => one.textContent === 'Crash').click()");
    assert!(said().starts_with("Power fails here"), "{}", said());
    tab.run("document.querySelector('.timeline').scrollIntoView({block: 'center'})");
    tab.keep_picture("timeline-wide");
    tab.close();
}

pub(crate) fn timeline_by_keyboard(world: &World) {
    let tab = world.open_at("crash", "#finding-1");
    let press = |key: Key| tab.press(&key.to_string());
    tab.run("document.querySelector('.rows .scroll').focus()");
    press(Key::Home);
    assert_eq!(tab.text(".stepper .count"), "Step 1 of 14");
    press(Key::Right);
    press(Key::Right);
    assert_eq!(tab.text(".stepper .count"), "Step 3 of 14");
    press(Key::Left);
    assert_eq!(tab.text(".stepper .count"), "Step 2 of 14");
    press(Key::End);
    assert_eq!(tab.text(".stepper .count"), "Step 14 of 14");
    // The slider, too, by its own keys.
    tab.run("document.querySelector('.stepper input').focus()");
    press(Key::Left);
    assert_eq!(tab.text(".stepper .count"), "Step 13 of 14");
    assert_eq!(
        tab.run("return document.querySelector('.said').getAttribute('aria-live')"),
        "polite"
    );
    tab.close();
}

pub(crate) fn graph_and_charts(world: &World) {
    let tab = world.open_at("crash", "#finding-1");
    assert_eq!(tab.run("return document.querySelectorAll('.graph .node').length"), 5);
    assert_eq!(
        tab.run("return document.querySelectorAll('.graph .edge:not(.wanted)').length"),
        4
    );
    assert_eq!(
        tab.run("return document.querySelectorAll('.graph .edge.wanted').length"),
        1
    );
    assert_eq!(overlapping_nodes(&tab), json!([]));
    let told = tab.run("return [...document.querySelectorAll('.as-text li')].map((one) => one.textContent)");
    let wanted =
        "struct node.key (src/list.c:17) has to persist before, and does not, struct list.head (src/list.c:21)";
    assert!(
        told.as_array().is_some_and(|told| told.contains(&json!(wanted))),
        "{told}"
    );
    tab.wait("document.querySelector('.chart .tested')");
    assert!(
        tab.text("#test figcaption")
            .contains("640 states tested in 8.4 s; 13 failed, with 2 causes.")
    );
    assert_eq!(
        tab.run("return document.querySelectorAll('.chart .found-dot').length"),
        2
    );
    assert!(tab.text("#finding-1 .output").contains("node 3 has no key </script>"));
    assert_eq!(
        tab.texts("#finding-1 .outcomes code"),
        ["list->head = node;", "node->key = key;"]
    );
    tab.run("document.querySelector('#test').scrollIntoView()");
    tab.keep_picture("charts-wide");
    tab.close();
}

fn overlapping_nodes(tab: &Tab) -> Value {
    tab.run(
        "const boxes = [...document.querySelectorAll('.graph .node rect')].map((one) => one.getBoundingClientRect());
         return boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) =>
             a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom).map(() => i))",
    )
}

pub(crate) fn traffic_is_sorted(world: &World) {
    let tab = world.open("crash");
    let functions = || tab.texts(".traffic tbody th");
    assert!(functions()[0].starts_with("insert"));
    assert!(tab.text("#traffic .prose").contains("100 of 400 flushes (25 %)"));
    tab.click(".traffic thead th:nth-child(2) button");
    assert_eq!(tab.texts(".traffic td:nth-child(2)"), ["400", "90", "10"]);
    tab.click(".traffic thead th:nth-child(2) button");
    assert_eq!(tab.texts(".traffic td:nth-child(2)"), ["10", "90", "400"]);
    assert_eq!(
        tab.run("return document.querySelector('.traffic th[aria-sort]').ariaSort"),
        "ascending"
    );
    tab.close();
}
