//! One self-contained HTML page: the findings, the source around them, the pictures. It opens from disk and asks for nothing.
//!
//! [`data`] is what the page's script reads, [`build`] makes it from reports, `page/` holds template, style and script. Nothing
//! of a report becomes markup here: it is all in one JSON text, and the script makes text nodes of it.

mod build;
pub mod data;
mod excerpts;
mod tables;

use std::path::PathBuf;

use crate::Suite;

const TEMPLATE: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/style.css");
/// One module: what a file defines is there for those that follow.
const SCRIPT: &str = concat!(
    include_str!("page/base.js"),
    include_str!("page/source.js"),
    include_str!("page/steps.js"),
    include_str!("page/timeline.js"),
    include_str!("page/stepper.js"),
    include_str!("page/graph.js"),
    include_str!("page/charts.js"),
    include_str!("page/details.js"),
    include_str!("page/findings.js"),
    include_str!("page/script.js"),
);

#[derive(Clone, Debug, Default)]
pub struct HtmlOptions {
    /// The command line that made the reports, as the user typed it.
    pub command: String,
    /// Relative source paths count from here, and files below it are shown relative to it.
    pub root: PathBuf,
    /// The findings were compared with a baseline.
    pub compared: bool,
}

/// The page of these reports.
pub fn to_html(suites: &[Suite], options: &HtmlOptions) -> Result<String, serde_json::Error> {
    let page = build::page(suites, options);
    let data = serde_json::to_string(&page)?;
    let title = match options.command.is_empty() {
        true => "crashproof".to_owned(),
        false => as_text(&page.title),
    };
    let part = |name: &str| match name {
        "title" => Some(title.as_str()),
        "style" => Some(STYLE),
        "script" => Some(SCRIPT),
        _ => None,
    };
    let mut html = String::with_capacity(TEMPLATE.len() + STYLE.len() + SCRIPT.len() + data.len());
    // Once over the template alone: whatever the parts hold, nothing in them is taken for a place.
    let mut rest = TEMPLATE;
    while let Some((before, after)) = rest.split_once("{{") {
        html += before;
        let Some((name, after)) = after.split_once("}}") else {
            html += "{{";
            rest = after;
            continue;
        };
        match (name, part(name)) {
            ("data", _) => html += &in_script(&data),
            (_, Some(part)) => html += part,
            (_, None) => html.extend(["{{", name, "}}"]),
        }
        rest = after;
    }
    html += rest;
    Ok(html)
}

/// JSON that nothing within a `script` element can mistake for markup: `</script>` and `<!--` both begin with `<`, which
/// occurs in JSON only within strings.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

fn as_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
