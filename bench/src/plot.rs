//! Bugs found over time, as an SVG picture.

use std::fmt::Write;

pub(crate) struct Curve<'a> {
    pub name: &'a str,
    /// When each bug was found, in any order.
    pub seconds: Vec<f64>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const MARGIN: f64 = 50.0;
const COLOURS: [&str; 4] = ["#888888", "#d08020", "#2060c0", "#208040"];
/// The axis of time is logarithmic and begins here.
const FIRST_SECOND: f64 = 0.01;

pub(crate) fn svg(curves: &[Curve<'_>], bugs: usize) -> String {
    let last = curves
        .iter()
        .flat_map(|curve| &curve.seconds)
        .copied()
        .fold(1.0, f64::max);
    let decades = (last / FIRST_SECOND).log10().ceil();
    let x = |seconds: f64| {
        let part = (seconds.max(FIRST_SECOND) / FIRST_SECOND).log10() / decades;
        MARGIN + part * (WIDTH - 2.0 * MARGIN)
    };
    let y = |found: usize| HEIGHT - MARGIN - found as f64 / bugs.max(1) as f64 * (HEIGHT - 2.0 * MARGIN);
    let mut text = String::new();
    let mut line = |written: std::fmt::Arguments<'_>| {
        // Writing to a string does not fail.
        let _ = text.write_fmt(written);
        text.push('\n');
    };
    line(format_args!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">"#
    ));
    line(format_args!(r#"<rect width="100%" height="100%" fill="white"/>"#));
    for decade in 0..=decades as i32 {
        let seconds = FIRST_SECOND * 10f64.powi(decade);
        let (at, bottom) = (x(seconds), y(0));
        line(format_args!(
            r##"<path d="M{at:.1} {bottom:.1}V{:.1}" stroke="#dddddd"/><text x="{at:.1}" y="{:.1}" text-anchor="middle">{seconds} s</text>"##,
            y(bugs),
            bottom + 18.0
        ));
    }
    for found in [0, bugs / 2, bugs] {
        line(format_args!(
            r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{found}</text>"#,
            MARGIN - 8.0,
            y(found) + 4.0
        ));
    }
    line(format_args!(
        r#"<text x="{:.1}" y="20" text-anchor="middle">seeded bugs found, of {bugs}, by time from the test's start</text>"#,
        WIDTH / 2.0
    ));
    for (i, curve) in curves.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let mut seconds = curve.seconds.clone();
        seconds.sort_by(f64::total_cmp);
        let mut path = format!("M{:.1} {:.1}", x(0.0), y(0));
        for (n, &at) in seconds.iter().enumerate() {
            let _ = write!(path, "H{:.1}V{:.1}", x(at), y(n + 1));
        }
        let _ = write!(path, "H{:.1}", WIDTH - MARGIN);
        line(format_args!(
            r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>"#
        ));
        line(format_args!(
            r#"<text x="{:.1}" y="{:.1}" fill="{colour}">{}: {}</text>"#,
            MARGIN + 12.0,
            MARGIN + 16.0 * (i + 1) as f64,
            curve.name,
            seconds.len()
        ));
    }
    text.push_str("</svg>\n");
    text
}
