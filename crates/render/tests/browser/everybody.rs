//! For everybody: colours, widths, keyboard, screen readers, paper.

use fantoccini::key::Key;
use serde_json::{Value, json};

use crate::findings::listed;
use crate::tab::Tab;
use crate::{NARROW, WIDE, World};

pub(crate) fn dark_and_light(world: &World) {
    let mut tab = world.open_at("crash", "#finding-1");
    let background = || tab.run("return getComputedStyle(document.body).backgroundColor");
    tab.prefer("light", "screen");
    let light = background();
    tab.prefer("dark", "screen");
    let dark = background();
    assert_ne!(light, dark);
    tab.keep_picture("crash-dark");
    tab.click("#theme label:nth-of-type(2)");
    assert_eq!(background(), light);
    tab.click("#theme label:nth-of-type(3)");
    tab.prefer("light", "screen");
    assert_eq!(background(), dark);
    // The choice stays.
    tab.reload();
    let background = || tab.run("return getComputedStyle(document.body).backgroundColor");
    assert_eq!(background(), dark);
    tab.click("#theme label:nth-of-type(1)");
    assert_eq!(background(), light);
    tab.close();
}

pub(crate) fn wide_and_narrow(world: &World) {
    let mut tab = Tab::blank(&world.driver, WIDE);
    for name in ["check", "crash", "test", "empty", "thousand"] {
        tab = tab.open_page(&world.page(name), "");
        // All details of the first hundred findings at once.
        tab.run("document.querySelector('.above button')?.click(); document.querySelectorAll('details').forEach((one) => { one.open = true })");
        for width in [WIDE, NARROW] {
            tab.resize(width);
            tab.wait(&format!("innerWidth === {width}"));
            let sideways =
                "const { scrollWidth, clientWidth } = document.documentElement; return scrollWidth - clientWidth";
            assert_eq!(tab.run(sideways), 0, "{name} scrolls sideways at {width}");
            assert_eq!(outside(&tab), json!([]), "{name} at {width}");
            tab.run("scrollTo(0, 0)");
            tab.keep_picture(&format!("{name}-top-{width}"));
        }
        tab.resize(WIDE);
    }
    tab = tab.open_page(&world.page("crash"), "#finding-1");
    tab.resize(NARROW);
    tab.wait(&format!("innerWidth === {NARROW}"));
    tab.run("document.querySelector('.rows').scrollIntoView({block: 'center'})");
    tab.keep_picture("timeline-narrow");
    tab.close();
}

/// Controls that nobody can reach: beyond the edge, and in nothing that scrolls.
fn outside(tab: &Tab) -> Value {
    tab.run(
        "return [...document.querySelectorAll('button, select, input, a, summary')].filter((one) => one.checkVisibility()
             && !one.closest('.scroll') && !one.matches('.skip')).filter((one) => {
             const box = one.getBoundingClientRect();
             return box.left < -1 || box.right > document.documentElement.clientWidth + 1 || box.width < 8 || box.height < 8;
         }).map((one) => one.outerHTML.slice(0, 120))",
    )
}

pub(crate) fn keyboard_only(world: &World) {
    let tab = world.open("crash");
    let tab_key = Key::Tab.to_string();
    let enter = Key::Enter.to_string();
    let to = |selector: &str| {
        for _ in 0..60 {
            tab.press(&tab_key);
            if tab.run(&format!("return document.activeElement.matches({selector:?})")) == true {
                let outline = tab.run("return getComputedStyle(document.activeElement).outlineStyle");
                let drawn = tab.run(
                    "return getComputedStyle(document.activeElement.nextElementSibling ?? document.body).outlineStyle",
                );
                assert!(
                    outline == "solid" || drawn == "solid",
                    "the focus on {selector} cannot be seen"
                );
                return;
            }
        }
        panic!("no way to {selector} by the tabulator key");
    };
    to(".skip");
    to("nav a");
    to("#theme input");
    tab.press(&Key::Right.to_string());
    assert_eq!(tab.run("return document.documentElement.dataset.theme"), "light");
    to(".counts button");
    to("#search");
    tab.press("atomicity");
    assert_eq!(listed(&tab), ["#2"]);
    tab.run("document.querySelector('#search').select()");
    tab.press("order");
    to("#filter-severity");
    to("#filter-kind");
    to("#sort");
    to("#finding-1 h3 button");
    tab.press(&enter);
    assert_eq!(tab.texts("#finding-1 .detail").len(), 1);
    to("#finding-1 .anchor");
    to("#finding-1 .source .scroll");
    to("#finding-1 .rows .scroll");
    tab.press(&Key::Left.to_string());
    assert_eq!(tab.text(".stepper .count"), "Step 11 of 14");
    to("#finding-1 .stepper button");
    tab.press(&enter);
    assert_eq!(tab.text(".stepper .count"), "Step 1 of 14");
    to("#finding-1 .as-text summary");
    tab.press(&enter);
    assert_eq!(tab.texts("#finding-1 .as-text li").len(), 5);
    to(".traffic thead button");
    tab.close();
}

pub(crate) fn for_screen_readers(world: &World) {
    const NAMED: [&str; 13] = [
        "button",
        "link",
        "searchbox",
        "textbox",
        "combobox",
        "radio",
        "slider",
        "region",
        "image",
        "navigation",
        "heading",
        "search",
        "columnheader",
    ];
    let mut tab = Tab::blank(&world.driver, WIDE);
    for name in ["check", "crash", "test", "empty"] {
        tab = tab.open_page(&world.page(name), "");
        tab.run("document.querySelector('.above button')?.click()");
        let tree = tab.devtools("Accessibility.getFullAXTree", json!({}));
        let nodes: Vec<&Value> = tree["nodes"]
            .as_array()
            .expect("a tree")
            .iter()
            .filter(|node| node["ignored"] != true)
            .collect();
        let role = |node: &Value| node["role"]["value"].as_str().unwrap_or_default().to_owned();
        let said = |node: &Value| node["name"]["value"].as_str().unwrap_or_default().trim().to_owned();
        for node in &nodes {
            let (role, said) = (role(node), said(node));
            let must = NAMED.contains(&role.as_str());
            assert!(!must || !said.is_empty(), "{name}: a {role} without a name: {node}");
        }
        for landmark in ["banner", "navigation", "main", "contentinfo"] {
            assert_eq!(
                nodes.iter().filter(|node| role(node) == landmark).count(),
                1,
                "{name}: {landmark}"
            );
        }
        let levels = tab.run("return [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].filter((one) => one.checkVisibility()).map((one) => Number(one.tagName[1]))");
        let levels: Vec<u32> = serde_json::from_value(levels).expect("levels");
        assert_eq!(levels[0], 1, "{name}");
        assert_eq!(levels.iter().filter(|&&level| level == 1).count(), 1, "{name}");
        assert!(
            levels.windows(2).all(|pair| pair[1] <= pair[0] + 1),
            "{name}: a level is left out: {levels:?}"
        );
        let twice = tab.run("const ids = [...document.querySelectorAll('[id]')].map((one) => one.id); return ids.filter((id, at) => ids.indexOf(id) !== at)");
        assert_eq!(twice, json!([]), "{name}: the same id twice");
        let dangling = tab.run("return [...document.querySelectorAll('[aria-controls], [aria-labelledby]')].flatMap((one) => [one.getAttribute('aria-controls'), one.getAttribute('aria-labelledby')]).filter((id) => id && !document.getElementById(id))");
        assert_eq!(dangling, json!([]), "{name}");
    }
    tab.close();
}

/// WCAG's AA: 4.5 to 1, of all text that stands on a plain ground.
pub(crate) fn contrast(world: &World) {
    let mut tab = Tab::blank(&world.driver, WIDE);
    for name in ["check", "crash"] {
        tab = tab.open_page(&world.page(name), "");
        tab.run("document.querySelector('.above button').click()");
        for colours in ["light", "dark"] {
            tab.prefer(colours, "screen");
            let weak = tab.run(include_str!("contrast.js"));
            assert_eq!(weak, json!([]), "{name}, {colours}");
        }
    }
    tab.close();
}

pub(crate) fn printed_and_without_script(world: &World) {
    let tab = world.open_at("crash", "#finding-1");
    tab.prefer("light", "print");
    assert_eq!(tab.texts(".top, .tools, .stepper button"), [""; 0]);
    assert_eq!(tab.texts("#finding-1 .detail").len(), 1);
    tab.keep_picture("crash-print");
    tab.close();
    let tab = Tab::blank(&world.driver, WIDE);
    tab.devtools("Emulation.setScriptExecutionDisabled", json!({"value": true}));
    let tab = tab.open_page(&world.page("crash"), "");
    tab.devtools("Emulation.setScriptExecutionDisabled", json!({"value": false}));
    assert!(tab.text("noscript").contains("Allow scripts"));
    tab.close();
}
