//! What an arrangement does, for people to read.

use super::instance::{Instance, Piece};
use super::list::List;
use super::search::Arrangement;

pub(super) fn words(list: &List, arrangement: &Arrangement, instances: &[Instance]) -> Vec<String> {
    let mut words = Vec::new();
    let here = list.heading();
    let pieces = &arrangement.pieces;
    let unit_of = |piece: &Piece| match piece {
        Piece::Unit { unit, .. } => Some(*unit),
        _ => None,
    };
    let kept = |piece: &&Piece| matches!(piece, Piece::Unit { moved: false, .. });
    for (index, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Unit { unit, moved: true } => {
                let before = pieces[..index].iter().rev().find(kept).and_then(unit_of);
                let next = pieces[index..].iter().find(kept).and_then(unit_of);
                let place = match (before, next) {
                    (Some(before), _) if before > *unit => format!("behind {}", list.describe(before)),
                    (_, Some(next)) => format!("in front of {}", list.describe(next)),
                    (Some(before), None) => format!("behind {}", list.describe(before)),
                    (None, None) => continue,
                };
                let what = match list.split(*unit) {
                    Some(split) => format!("`{}` of {}", split.step.trim_end_matches(';'), list.describe(*unit)),
                    None => list.describe(*unit),
                };
                words.push(format!("{here}, {what} moves {place}"));
            }
            Piece::Flush(_) => {
                let behind = pieces[..index].iter().rev().find_map(unit_of);
                if let Some(behind) = behind {
                    words.push(format!(
                        "{here}, what {} stores is flushed right behind it",
                        list.describe(behind)
                    ));
                }
            }
            Piece::Fence => {
                let next = pieces[index..].iter().find_map(unit_of);
                let behind = pieces[..index].iter().rev().find_map(unit_of);
                let place = match (next, behind) {
                    (Some(next), _) => format!("in front of {}", list.describe(next)),
                    (None, Some(behind)) => format!("behind {}", list.describe(behind)),
                    (None, None) => continue,
                };
                words.push(format!("{here}, a fence {place} waits for what was flushed before"));
            }
            Piece::Unit { .. } => {}
        }
    }
    if arrangement.inside {
        words.push(format!(
            "{}: what has to persist first is flushed where it is stored",
            list.tree.file.name()
        ));
    }
    words.push(match arrangement.has_moves() {
        true => format!(
            "safe: of what changes places nothing reads or writes what the other writes, nothing in between leaves the block, and in {} nothing that was durable is lost",
            seen(instances.len())
        ),
        false => format!(
            "safe: flushes and fences change no value; the order holds then in {}",
            seen(instances.len())
        ),
    });
    words
}

fn seen(instances: usize) -> String {
    match instances {
        1 => "the one recorded execution of the block".into(),
        count => format!("all {count} recorded executions of the block"),
    }
}
