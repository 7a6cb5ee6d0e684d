//! Grouping update behaviours under the largest that represents them (dissertation §4.4.4).
//!
//! From the largest behaviour (most updates, then fewest edges, then the earliest) to the smallest: each is added to every group
//! whose representative represents it, and begins a group if there is none. Behaviours of one shape are one here.

use super::compare::{Comparable, Scratch};
use super::epochs::{Class, Epoch, EpochId, parts};
use super::shape::Shape;
use rustc_hash::FxHashMap;

/// Behaviours that one of them stands for.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Shapes; the first is the representative's.
    pub classes: Vec<usize>,
    /// Behaviours of all of them.
    pub count: u64,
    pub joint: bool,
}

pub(crate) fn shape<'e>(class: &Class, epochs: &'e FxHashMap<EpochId, Epoch>) -> Shape<'e> {
    shape_of(&class.members[0].epochs, epochs)
}

pub(crate) fn shape_of<'e>(ids: &[EpochId], epochs: &'e FxHashMap<EpochId, Epoch>) -> Shape<'e> {
    Shape::new(&parts(ids, epochs))
}

pub(crate) fn group(classes: &[Class], epochs: &FxHashMap<EpochId, Epoch>) -> Vec<Group> {
    let shapes: Vec<Shape<'_>> = classes.iter().map(|class| shape(class, epochs)).collect();
    let mut order: Vec<usize> = (0..classes.len()).collect();
    // Shapes are numbered as they first came up.
    order.sort_by_cached_key(|&class| (usize::MAX - shapes[class].nodes.len(), shapes[class].edges(), class));
    let comparables = Comparable::all(&shapes);
    let mut scratch = Scratch::default();
    let mut groups: Vec<Group> = Vec::new();
    let mut by_type: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
    for class in order {
        let known = by_type.entry(shapes[class].ty).or_default();
        let mut represented = false;
        for &number in known.iter() {
            let group = &mut groups[number];
            if comparables[group.classes[0]].represents(&comparables[class], &mut scratch) {
                group.classes.push(class);
                group.count += classes[class].count;
                represented = true;
            }
        }
        if !represented {
            known.push(groups.len());
            groups.push(Group {
                classes: vec![class],
                count: classes[class].count,
                joint: classes[class].members[0].epochs.len() > 1,
            });
        }
    }
    groups
}
