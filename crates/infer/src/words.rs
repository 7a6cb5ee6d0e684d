//! A condition as a sentence.

use crashproof_finding::Frame;

use crate::conditions::Rule;
use crate::listing::{Because, Side};

/// "`key` must persist before `token`, because level_query reads `key` only if `token` allows it (level.c:3)".
pub(crate) fn condition(rule: Rule, before: &Side, after: Option<&Side>, because: &Because, guardians: u64) -> String {
    let who = because.frame.function.as_deref().unwrap_or("the program");
    let place = place(because);
    let first = name(before);
    let Some(after) = after else {
        let others = match guardians.saturating_sub(1) {
            1 => "the other guardian".to_owned(),
            others => format!("the {others} other guardians"),
        };
        return format!("{first} must persist together with {others}, because {who} does what {first} tells{place}");
    };
    let last = name(after);
    let (first, last) = match before.field.is_some() && first == last {
        true => (format!("one {first}"), format!("another {last}")),
        false => (first, last),
    };
    let reason = match rule {
        Rule::Po1 => format!("{who} computes {last} from {first}"),
        Rule::Po2 => format!("{who} writes {last} only if {first} allows it"),
        Rule::Po3 => format!("{who} reads {first} only if {last} allows it"),
        Rule::Po4 | Rule::Pa1 => format!("{who} finds {first} through {last}"),
    };
    format!("{first} must persist before {last}, because {reason}{place}")
}

/// "`left.token` and `right.token` must persist together, because get does what `left.token` tells (level.c:3), and …".
pub(crate) fn together((first, because): (&Side, &Because), (other, of_other): (&Side, &Because)) -> String {
    let tells = |because: &Because, what: &str| {
        let who = because.frame.function.as_deref().unwrap_or("the program");
        format!("{who} does what {what}{}", place(because))
    };
    let (one, two) = (name(first), name(other));
    if one == two {
        return format!(
            "one {one} must persist together with another {one}, because {}",
            tells(because, "they tell")
        );
    }
    let [why, and] =
        [(because, &one), (of_other, &two)].map(|(because, name)| tells(because, &format!("{name} tells")));
    format!("{one} must persist together with {two}, because {why}, and {and}")
}

/// Where the hint is; both lines if they are two.
fn place(because: &Because) -> String {
    let position = |frame: &Frame| Some((file_name(frame.file.as_deref()?).to_owned(), frame.line?));
    match (position(&because.frame), because.source.as_ref().and_then(position)) {
        (Some((file, line)), Some((other, source))) if file == other && line != source => {
            format!(" ({file}:{line}, which depends on line {source})")
        }
        (Some((file, line)), Some((other, source))) if file != other => {
            format!(" ({file}:{line}, which depends on {other}:{source})")
        }
        (Some((file, line)), _) => format!(" ({file}:{line})"),
        _ => String::new(),
    }
}

fn name(side: &Side) -> String {
    if let Some(field) = &side.field {
        return format!("`{field}`");
    }
    let writer = side.frame.as_ref().filter(|frame| frame.has_position());
    match writer.and_then(|frame| Some((frame.function.as_deref()?, frame.file.as_deref()?, frame.line?))) {
        Some((function, file, line)) => format!("what {function} stores at {}:{line}", file_name(file)),
        None if side.frame.is_none() => "data that this run does not store".to_owned(),
        None => format!("{}+{:#x}", file_name(&side.at.file), side.at.offset),
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
