//! Updates that have to become persistent as one: what is changed is named, and the two changes that need no design are made.
//!
//! - Two integer members of one struct, next to each other in one aligned word of up to eight bytes, that two statements assign: one store of the word.
//! - A store in a transaction of libpmemobj whose target no snapshot covers: `pmemobj_tx_add_range_direct` in front of it. That it is in a transaction must be
//!   written in its function (`TX_BEGIN`): elsewhere the call would end the program.
//!
//! Everything else is for a person; see [`super::advice`].

use std::path::PathBuf;

use clang::{Entity, EntityKind, TypeKind};
use crashproof_finding::{CrashStore, Finding};
use crashproof_stacks::file_name;

use super::list::List;
use super::moves::Movable;
use super::{Fix, Orderer, Side};
use crate::plan::Place;
use crate::source::changes::Changes;
use crate::source::edits::Edits;
use crate::source::hint::Hint;
use crate::source::patcher::Patcher;
use crate::source::refusal::Refusal;
use crate::source::tree::{FunctionTree, NodeId};
use crate::source::written::{Target, Write};

/// A store of the finding.
struct Stored {
    side: Side,
    places: Vec<Place>,
    /// libpmemobj makes it: of a transaction, its commit.
    by_library: bool,
}

fn stored(orderer: &mut Orderer, finding: &Finding) -> Vec<Stored> {
    let Some(crash) = &finding.crash else {
        return Vec::new();
    };
    let mut all: Vec<Stored> = Vec::new();
    let stores: Vec<&CrashStore> = crash.persisted.iter().chain(&crash.missing).collect();
    for store in stores {
        let side = orderer.side(store, crash);
        if all.iter().any(|other| other.side.path == side.path) {
            continue;
        }
        let places = orderer.places(std::iter::once(&side));
        let module = side.frames.first().and_then(|frame| frame.module.as_deref());
        all.push(Stored {
            by_library: module.is_some_and(|module| file_name(module).starts_with("libpmemobj.so")),
            side,
            places,
        });
    }
    all
}

/// What a statement stores to, as the source has it: `pair->first`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WrittenName {
    pub name: String,
    /// Canonical.
    pub file: PathBuf,
    pub line: u32,
}

/// What the finding's stores write.
pub(super) fn names(orderer: &mut Orderer, finding: &Finding) -> Vec<WrittenName> {
    let mut names = Vec::new();
    for stored in stored(orderer, finding) {
        for place in &stored.places {
            let Ok(position) = Patcher::position(place) else {
                continue;
            };
            let Ok(tree) = FunctionTree::around(orderer.units, position) else {
                continue;
            };
            let Ok(writes) = tree.writes_at(position, &Hint::of(orderer.module, place)) else {
                continue;
            };
            for write in writes {
                if let Target::Lvalue(target) | Target::Range { address: target, .. } = write.target {
                    let name = WrittenName {
                        name: tree.text(target).to_owned(),
                        file: tree.file.path.clone(),
                        line: position.line,
                    };
                    if !names.contains(&name) && !name.name.is_empty() && !name.name.contains('\n') {
                        names.push(name);
                    }
                }
            }
        }
    }
    names
}

/// One of the changes that need no design.
pub(super) fn make_one(orderer: &mut Orderer, finding: &Finding) -> Option<Fix> {
    let stored = stored(orderer, finding);
    let places = |stored: &[&Stored]| -> Vec<Place> {
        let places = stored.iter().flat_map(|stored| stored.places.iter().cloned());
        places.collect()
    };
    let all: Vec<&Stored> = stored.iter().collect();
    // A snapshot is missing of what the program stores; what the library stores is how the transaction ends.
    let own: Vec<&Stored> = stored.iter().filter(|stored| !stored.by_library).collect();
    let list = |stored: &[&Stored]| List::holding(orderer.units, stored.first()?.side.path.first()?).ok();
    if let Some(list) = list(&all)
        && let Some(fix) = merged(orderer, &list, &places(&all))
    {
        return Some(fix);
    }
    snapshotted(orderer, &list(&own)?, &places(&own))
}

/// A member that is assigned by a statement of its own.
struct Assigned<'a> {
    unit: usize,
    member: NodeId,
    value: NodeId,
    field: Entity<'a>,
    /// In bytes.
    offset: usize,
    size: usize,
}

fn assigned<'a>(list: &List<'a>, write: &Write) -> Option<Assigned<'a>> {
    let tree = &list.tree;
    let Target::Lvalue(target) = write.target else {
        return None;
    };
    let unit = list.units.iter().position(|unit| tree.strip(unit.node) == write.node)?;
    let member = tree.strip(target);
    let field = tree.nodes[member].entity.get_reference()?;
    let is_plain = tree.kind(write.node) == EntityKind::BinaryOperator
        && tree.name(write.node) == "="
        && tree.nodes[write.node].is_spelled
        && tree.kind(member) == EntityKind::MemberRefExpr
        && field.get_kind() == EntityKind::FieldDecl
        && !field.is_bit_field();
    let value = tree.child(write.node, 1)?;
    let is_number = |node: NodeId| {
        tree.ty(node)
            .is_some_and(|ty| ty.get_canonical_type().is_integer() && !ty.is_volatile_qualified())
    };
    // What has no effect of its own may be evaluated in any order.
    let is_quiet = tree.descendants(write.node).skip(1).all(|inner| {
        !matches!(
            tree.kind(inner),
            EntityKind::CallExpr | EntityKind::CompoundAssignOperator | EntityKind::StmtExpr | EntityKind::LambdaExpr
        ) && tree.write(inner).is_none()
    });
    // To a `bool` every value but 0 is 1.
    let is_bool = tree.ty(member)?.get_canonical_type().get_kind() == TypeKind::Bool;
    let are_numbers = is_number(member) && is_number(value) && is_number(tree.strip(value));
    (is_plain && is_quiet && are_numbers && !is_bool).then_some(())?;
    Some(Assigned {
        unit,
        member,
        value,
        offset: field.get_offset_of_field().ok()? / 8,
        size: tree.ty(member)?.get_sizeof().ok()?,
        field,
    })
}

/// Two members of one word, assigned at once.
fn merged<'a>(orderer: &Orderer<'a, '_, '_>, list: &List<'a>, places: &[Place]) -> Option<Fix> {
    let tree = &list.tree;
    let writer = orderer.writer(list, places);
    let mut found: Vec<Assigned> = Vec::new();
    for write in writer.writes(places).ok()? {
        let assigned = assigned(list, &write)?;
        if !found.iter().any(|other| other.unit == assigned.unit) {
            found.push(assigned);
        }
    }
    found.sort_by_key(|assigned| assigned.offset);
    let [low, high] = &found[..] else {
        return None;
    };
    let base = |assigned: &Assigned| tree.child(assigned.member, 0).map(|base| tree.text(base));
    let record = low.field.get_semantic_parent()?;
    let size = low.size + high.size;
    let is_one_word = Some(record) == high.field.get_semantic_parent()
        && record.get_kind() == EntityKind::StructDecl
        && base(low)? == base(high)?
        && low.size == high.size
        && low.offset + low.size == high.offset
        && low.offset % size == 0
        && [2, 4, 8].contains(&size)
        && record.get_type()?.get_alignof().ok()? >= size;
    if !is_one_word {
        return None;
    }
    let (first, second) = (low.unit.min(high.unit), low.unit.max(high.unit));
    // What lies between them, on this path or another, may rely on the first being made before it.
    if second != first + 1 {
        return None;
    }
    let movable = Movable::new(list, orderer.module, &orderer.analysis, &[]);
    (first + 1..=second)
        .try_for_each(|passed| movable.check(first, passed))
        .ok()?;
    let name = |bytes: usize| match tree.file.text.contains("uint64_t") {
        true => format!("uint{}_t", 8 * bytes),
        false => [
            "unsigned char",
            "unsigned short",
            "",
            "unsigned int",
            "",
            "",
            "",
            "unsigned long",
        ][bytes - 1]
            .into(),
    };
    let part = |assigned: &Assigned| {
        format!(
            "({})({})({})",
            name(size),
            name(assigned.size),
            tree.text(assigned.value)
        )
    };
    let statement = format!(
        "__atomic_store_n(({} __attribute__((may_alias)) *)&{}, {} | {} << {}, __ATOMIC_RELAXED);",
        name(size),
        tree.text(low.member),
        part(low),
        part(high),
        8 * low.size
    );
    let mut edits = Edits::default();
    edits.replace(writer.lines(first).ok()?, String::new()).ok()?;
    edits.replace(list.units[second].range.clone(), statement).ok()?;
    Some(Fix {
        key: format!(
            "{}:{}: one word",
            tree.file.path.display(),
            list.units[second].range.start
        ),
        moved: [first, second]
            .map(|unit| (tree.file.path.clone(), list.units[unit].range.clone()))
            .to_vec(),
        touched: Vec::new(),
        changes: changes(tree, edits).ok()?,
        words: vec![
            format!(
                "`{}` and `{}` are one aligned word of {size} bytes: {} and {} become one store of it",
                tree.text(low.member),
                tree.text(high.member),
                list.describe(first),
                list.describe(second)
            ),
            "safe: neither statement reads what the other writes, and nothing between them does".into(),
        ],
        litmus: String::new(),
    })
}

/// Snapshots in front of stores of a transaction that have none.
fn snapshotted<'a>(orderer: &Orderer<'a, '_, '_>, list: &List<'a>, places: &[Place]) -> Option<Fix> {
    const NAME: &str = "pmemobj_tx_add_range_direct";
    let tree = &list.tree;
    let file = &tree.file;
    let writer = orderer.writer(list, places);
    let mut edits = Edits::default();
    let mut words = Vec::new();
    let mut touched = Vec::new();
    for write in writer.writes(places).ok()? {
        let Target::Lvalue(target) = write.target else {
            return None;
        };
        let unit = list.units.iter().position(|unit| tree.strip(unit.node) == write.node)?;
        let at = list.units[unit].range.start;
        // The stage of the transaction that the statement is written in.
        let stage = tree
            .macros
            .iter()
            .rfind(|(used, name)| used.start < at && name.starts_with("TX_"));
        if !stage.is_some_and(|(_, name)| name.starts_with("TX_BEGIN")) {
            return None;
        }
        let text = tree.text(target);
        let is_covered = list.units[..unit].iter().any(|earlier| {
            let statement = &file.text[earlier.range.clone()];
            statement.contains("tx_add_range") && statement.contains(text)
        });
        if is_covered {
            continue;
        }
        // Evaluated before the statement, it must mean the same.
        if !tree.repeat(&write, &[write.node]).ok()?.is_empty() || tree.flushed(&write, &Default::default()).is_err() {
            return None;
        }
        let lines = writer.lines(unit).ok()?;
        let indentation = file.indentation(at);
        let call = format!("{indentation}{NAME}(&{text}, {});{}", tree.sizeof(text), file.newline());
        edits.replace(lines.start..lines.start, call).ok()?;
        words.push(format!(
            "a snapshot of `{text}` is taken in front of {}",
            list.describe(unit)
        ));
        touched.push((file.path.clone(), list.units[unit].range.clone()));
    }
    if words.is_empty() {
        return None;
    }
    words.push("safe: in a transaction a snapshot changes nothing but what an abort or a crash takes back".into());
    Some(Fix {
        key: format!("{}: {words:?}", file.path.display()),
        moved: Vec::new(),
        touched,
        changes: changes(tree, edits).ok()?,
        words,
        litmus: String::new(),
    })
}

fn changes(tree: &FunctionTree, edits: Edits) -> Result<Changes, Refusal> {
    let mut changes = Changes::default();
    changes.edit(&tree.file.path, &edits)?;
    Ok(changes)
}
