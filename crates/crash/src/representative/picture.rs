//! The persistence graph of one behaviour as a picture: Graphviz's DOT, and SVG with a layout of our own, so that nothing needs to be
//! installed to see it.
//!
//! The layout is Sugiyama's, in its simplest form: an update's layer is the length of the longest path to it, and within a layer
//! updates are ordered by the mean place of those that they come after.

use std::fmt::Write;

use super::view::{Behaviour, BehaviourUpdate};

const CHARACTER: f64 = 7.3;
const HEIGHT: f64 = 40.0;
const GAP_X: f64 = 24.0;
const GAP_Y: f64 = 46.0;
const MARGIN: f64 = 20.0;
/// Fills of the first and the second object.
const COLOURS: [&str; 2] = ["#dbe9fb", "#fde7c7"];

impl BehaviourUpdate {
    /// The field, and where it is stored.
    fn label(&self) -> (String, String) {
        let place = match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{}:{line}", file.rsplit('/').next().unwrap_or(file)),
            _ => self.function.clone().unwrap_or_default(),
        };
        if self.field == place {
            (place, self.function.clone().unwrap_or_default())
        } else {
            (self.field.clone(), place)
        }
    }
}

impl Behaviour {
    /// What it is called in a picture.
    fn title(&self) -> String {
        format!("{}: stands for {}", self.types.join(" + "), self.represents)
    }

    /// In Graphviz's language.
    pub fn to_dot(&self) -> String {
        let mut dot = String::from("digraph behaviour {\n  rankdir=TB;\n");
        let _ = writeln!(dot, "  label={};", quoted(&self.title()));
        dot += "  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n";
        for (number, update) in self.updates.iter().enumerate() {
            let (field, place) = update.label();
            let colour = COLOURS[update.of % COLOURS.len()];
            let text = quoted(&format!("{field}\n{place}"));
            let _ = writeln!(dot, "  n{number} [label={text}, fillcolor=\"{colour}\"];");
        }
        for (from, to) in &self.edges {
            let _ = writeln!(dot, "  n{from} -> n{to};");
        }
        dot + "}\n"
    }

    pub fn to_svg(&self) -> String {
        let layers = self.layers();
        let labels: Vec<(String, String)> = self.updates.iter().map(BehaviourUpdate::label).collect();
        let width_of = |number: usize| {
            let (field, place) = &labels[number];
            field.chars().count().max(place.chars().count()) as f64 * CHARACTER + 20.0
        };
        let row_width = |row: &[usize]| row.iter().map(|&n| width_of(n) + GAP_X).sum::<f64>() - GAP_X;
        let title = self.title();
        let widest = layers
            .iter()
            .map(|row| row_width(row))
            .fold(title.chars().count() as f64 * CHARACTER, f64::max);
        let (width, height) = (
            widest + 2.0 * MARGIN,
            2.0 * MARGIN + 24.0 + layers.len() as f64 * (HEIGHT + GAP_Y),
        );
        // Middle of the upper edge of each box.
        let mut places = vec![(0.0, 0.0); self.updates.len()];
        for (number, row) in layers.iter().enumerate() {
            let mut x = (width - row_width(row)) / 2.0;
            for &update in row {
                places[update] = (
                    x + width_of(update) / 2.0,
                    MARGIN + 24.0 + number as f64 * (HEIGHT + GAP_Y),
                );
                x += width_of(update) + GAP_X;
            }
        }
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
             orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" fill=\"#555\"/></marker></defs>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{MARGIN}\" y=\"{MARGIN}\" font-weight=\"bold\">{}</text>\n",
            escaped(&title)
        );
        for &(from, to) in &self.edges {
            let ((x1, y1), (x2, y2)) = (places[from], places[to]);
            let (start, middle) = (y1 + HEIGHT, (y1 + HEIGHT + y2) / 2.0);
            let _ = writeln!(
                svg,
                "<path d=\"M{x1:.1},{start:.1} C{x1:.1},{middle:.1} {x2:.1},{middle:.1} {x2:.1},{y2:.1}\" fill=\"none\" \
                 stroke=\"#555\" marker-end=\"url(#arrow)\"/>"
            );
        }
        for (number, (field, place)) in labels.iter().enumerate() {
            let (x, y) = places[number];
            let box_width = width_of(number);
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{box_width:.1}\" height=\"{HEIGHT}\" rx=\"6\" fill=\"{}\" \
                 stroke=\"#777\"/>\n<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#666\" font-size=\"10\">{}</text>",
                x - box_width / 2.0,
                COLOURS[self.updates[number].of % COLOURS.len()],
                y + 17.0,
                escaped(field),
                y + 32.0,
                escaped(place),
            );
        }
        svg + "</svg>\n"
    }

    /// Updates by layer, from left to right.
    fn layers(&self) -> Vec<Vec<usize>> {
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.updates.len()];
        for &(from, to) in &self.edges {
            before[to].push(from);
        }
        let mut layer = vec![0usize; self.updates.len()];
        // Edges lead forward in the order of execution.
        for update in 0..self.updates.len() {
            layer[update] = before[update].iter().map(|&from| layer[from] + 1).max().unwrap_or(0);
        }
        let depth = layer.iter().max().map_or(0, |deepest| deepest + 1);
        let mut rows: Vec<Vec<usize>> = vec![Vec::new(); depth];
        let mut place = vec![0.0; self.updates.len()];
        for (update, &row) in layer.iter().enumerate() {
            rows[row].push(update);
        }
        for row in &mut rows {
            let mean = |&update: &usize| {
                let from = &before[update];
                let sum: f64 = from.iter().map(|&other| place[other]).sum();
                if from.is_empty() { 0.0 } else { sum / from.len() as f64 }
            };
            row.sort_by(|a, b| mean(a).total_cmp(&mean(b)).then(a.cmp(b)));
            let count = row.len() as f64;
            for (index, &update) in row.iter().enumerate() {
                place[update] = (index as f64 + 0.5) / count;
            }
        }
        rows
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\n' => out += "\\n",
            _ => out.push(character),
        }
    }
    out + "\""
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '"' => out += "&quot;",
            character if character.is_control() => out.push(' '),
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(of: usize, field: &str, line: u32) -> BehaviourUpdate {
        BehaviourUpdate {
            of,
            field: field.into(),
            function: Some("insert<int>".into()),
            file: Some("src/list.c".into()),
            line: Some(line),
            pm_file: "/pm/pool".into(),
            offset: 64,
            length: 8,
            event: u64::from(line),
            persistent_at: None,
        }
    }

    fn behaviour() -> Behaviour {
        Behaviour {
            types: vec!["struct node".into(), "struct list".into()],
            represents: 40,
            shapes: 2,
            points: 2,
            updates: vec![
                update(0, "key", 10),
                update(0, "value", 11),
                update(0, "a \"b\" <c> & \\d", 12),
                update(1, "head", 14),
            ],
            edges: vec![(0, 3), (1, 3)],
        }
    }

    #[test]
    fn dot_has_every_update_and_edge() {
        let dot = behaviour().to_dot();
        assert!(dot.contains("n0 [label=\"key\\nlist.c:10\""), "{dot}");
        assert!(dot.contains("a \\\"b\\\" <c> & \\\\d"), "{dot}");
        assert!(dot.contains("n0 -> n3;") && dot.contains("n1 -> n3;"));
        assert_eq!(dot.matches(" -> ").count(), 2);
    }

    #[test]
    fn svg_is_well_formed_and_layered() {
        let behaviour = behaviour();
        assert_eq!(behaviour.layers(), [vec![0, 1, 2], vec![3]]);
        let svg = behaviour.to_svg();
        assert!(svg.contains("a &quot;b&quot; &lt;c&gt; &amp; \\d"), "{svg}");
        assert_eq!(svg.matches("<rect x=").count(), 4);
        assert_eq!(svg.matches("marker-end").count(), 2);
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }
}
