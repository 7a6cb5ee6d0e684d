//! Whether statements of a list may change places.
//!
//! A statement moves only past statements on which it does not depend and that do not depend on it, and only to where it runs exactly when it did: nothing in between may
//! leave the list, enter it from elsewhere, or end the program. What flushes or fences and does nothing else may run more often than before.

use std::cell::OnceCell;
use std::ops::Range;

use clang::{EntityKind, TypeKind};
use crashproof_llvm::{Block, File, Module, Value};
use rustc_hash::{FxHashMap, FxHashSet};

use super::calls::is_pointing;
use super::effects::{Analysis, Effects};
use super::instance::Instance;
use super::list::List;
use crate::ir::{self, Code};
use crate::source::text::TokenKind;
use crate::source::tree::NodeId;

/// A list with what its statements do.
pub(super) struct Movable<'l, 'a, 'm, 'c> {
    pub list: &'l List<'a>,
    analysis: &'l Analysis<'m, 'c>,
    effects: Vec<OnceCell<Effects<'m>>>,
    /// By unit.
    code: Vec<Vec<Value<'m>>>,
    /// By unit: in some recorded execution it flushed nothing.
    quiet: Vec<bool>,
}

/// A declaration `T v = L++;` as two statements, `T v = L;` and `L++;`, of which the second may move.
pub(super) struct Split {
    /// The `++` or `--`.
    pub operator: Range<usize>,
    /// The statement that moves.
    pub step: String,
}

impl List<'_> {
    pub(super) fn split(&self, unit: usize) -> Option<Split> {
        let tree = &self.tree;
        let node = self.units[unit].node;
        let [variable] = tree.nodes[node].children[..] else {
            return None;
        };
        let step = tree.strip(*tree.nodes[variable].children.last()?);
        let (operator, true) = tree.unary_operator(step)? else {
            return None;
        };
        let target = tree.child(step, 0)?;
        let range = tree.range(target).end..tree.range(step).end;
        let is_plain = tree.kind(node) == EntityKind::DeclStmt
            && tree.kind(variable) == EntityKind::VarDecl
            && tree.ty(variable).is_some_and(|ty| {
                !matches!(
                    ty.get_canonical_type().get_kind(),
                    TypeKind::LValueReference | TypeKind::RValueReference
                )
            })
            && ["++", "--"].contains(&operator.as_str())
            && [variable, step, target]
                .into_iter()
                .all(|node| tree.nodes[node].is_spelled)
            && tree.file.text[range.clone()].trim() == operator
            && tree
                .descendants(target)
                .all(|inner| tree.kind(inner) != EntityKind::CallExpr && tree.write(inner).is_none());
        is_plain.then(|| Split {
            operator: range,
            step: format!("{}{operator};", tree.text(target)),
        })
    }
}

impl<'l, 'a, 'm, 'c> Movable<'l, 'a, 'm, 'c> {
    pub(super) fn new(
        list: &'l List<'a>,
        module: &'m Module<'c>,
        analysis: &'l Analysis<'m, 'c>,
        instances: &[Instance],
    ) -> Movable<'l, 'a, 'm, 'c> {
        let mut code = vec![Vec::new(); list.units.len()];
        let file = &list.tree.file;
        let function = list.tree.range(0);
        let mut keys: Vec<(Option<File>, bool)> = Vec::new();
        for function_value in module.functions() {
            for instruction in function_value.code() {
                let Some(location) = instruction.location() else {
                    continue;
                };
                let key = location.file();
                let is_here = match keys.iter().find(|(known, _)| *known == key) {
                    Some((_, is_here)) => *is_here,
                    None => {
                        let path = key.map(ir::path).unwrap_or_default();
                        let is_here = crate::source::units::canonical(&path) == file.path;
                        keys.push((key, is_here));
                        is_here
                    }
                };
                if !is_here {
                    continue;
                }
                let Some(offset) = file.offset(location.line(), location.column().max(1)) else {
                    continue;
                };
                if function.contains(&offset)
                    && let Some(unit) = list.unit_at(offset)
                {
                    code[unit].push(instruction);
                }
            }
        }
        Movable {
            list,
            analysis,
            effects: code.iter().map(|_| OnceCell::new()).collect(),
            quiet: (0..code.len())
                .map(|unit| instances.iter().any(|instance| instance.flushed_by(unit).is_empty()))
                .collect(),
            code,
        }
    }

    fn effects(&self, unit: usize) -> &Effects<'m> {
        self.effects[unit].get_or_init(|| self.analysis.of(self.code[unit].iter().copied()))
    }

    /// A statement that flushes or fences, and does nothing else.
    pub(super) fn only_persists(&self, unit: usize) -> bool {
        !self.code[unit].is_empty() && !self.is_declaration(unit) && self.effects(unit).only_persists()
    }

    pub(super) fn only_fences(&self, unit: usize) -> bool {
        self.only_persists(unit) && self.always_fences(unit) && self.effects(unit).flushes.is_empty()
    }

    /// A statement that fences whatever way is taken through it.
    pub(super) fn always_fences(&self, unit: usize) -> bool {
        !self.branches_itself(unit) && self.code[unit].iter().any(|at| self.analysis.always_fences(*at))
    }

    /// A statement that fences only on some ways through it.
    pub(super) fn fences_by_chance(&self, unit: usize) -> bool {
        self.effects(unit).fences && !self.always_fences(unit)
    }

    /// A statement that leaves nothing that waits for a fence.
    fn settles(&self, unit: usize) -> bool {
        !self.code[unit].iter().any(|at| self.analysis.may_leave_pending(*at))
    }

    /// Whether the compiler moves no store across the statement.
    pub(super) fn is_barrier(&self, unit: usize) -> bool {
        self.effects(unit).barrier
    }

    fn is_declaration(&self, unit: usize) -> bool {
        self.list.tree.kind(self.list.units[unit].node) == EntityKind::DeclStmt
    }

    /// Whether `moved` may come to the other side of `passed`; why not.
    pub(super) fn check(&self, moved: usize, passed: usize) -> Result<(), String> {
        let tree = &self.list.tree;
        let describe = |unit: usize| self.list.describe(unit);
        let node = |unit: usize| self.list.units[unit].node;
        let split = self.list.split(moved);
        if self.is_declaration(moved) && split.is_none() {
            return Err(format!(
                "{} declares a variable, which has to stay where it is",
                describe(moved)
            ));
        }
        let runs_earlier = passed < moved;
        for unit in [moved, passed] {
            if let Some(what) = self.label_in(node(unit)) {
                return Err(format!("{} has {what}, by which the code is entered", describe(unit)));
            }
            if let Some(what) = self.leaves(node(unit)) {
                let otherwise = match (unit == passed, runs_earlier) {
                    (true, true) => format!(", and {} would be done then, too", describe(moved)),
                    (true, false) => format!(", and {} would not be done then", describe(moved)),
                    (false, _) => String::new(),
                };
                return Err(format!("{} may leave the block ({what}){otherwise}", describe(unit)));
            }
        }
        let between = {
            let (first, last) = (moved.min(passed), moved.max(passed));
            self.list.units[first].range.start..self.list.units[last].range.end
        };
        if tree.file.has_directive(between) {
            return Err(format!(
                "a preprocessor directive lies between {} and {}",
                describe(moved),
                describe(passed)
            ));
        }
        if self.declares_by_name(passed) && self.uses_macro(moved) {
            return Err(format!(
                "{} declares what a macro in {} may use",
                describe(passed),
                describe(moved)
            ));
        }
        if let Some(name) = self
            .declared_in(passed)
            .into_iter()
            .find(|name| self.mentions(moved, name))
        {
            return Err(format!(
                "{} declares `{name}`, which {} uses",
                describe(passed),
                describe(moved)
            ));
        }
        // Of a declaration that is split, what it gives to its variable stays.
        let step = split.map(|_| {
            let is_step = |at: &Value<'m>| !at.store_pointer().is_some_and(Value::is_alloca);
            self.analysis.of(self.code[moved].iter().copied().filter(is_step))
        });
        let (ours, theirs) = (step.as_ref().unwrap_or(self.effects(moved)), self.effects(passed));
        if self.code[moved].is_empty() {
            return Err(format!(
                "the compiler made no code of {} that could be looked at",
                describe(moved)
            ));
        }
        // A store in front of a fence that it was behind: what the fence waited for no longer comes before it.
        let fence = moved.min(passed);
        let overtakes = moved.max(passed);
        if self.effects(fence).persists && !self.only_persists(overtakes) && self.may_be_pending(fence) {
            return Err(format!(
                "{} may be there for more than what the recording shows, and must not come later",
                describe(fence)
            ));
        }
        if ours.only_persists() && runs_earlier && self.may_be_missed(ours, passed) {
            return Err(format!(
                "{} may store or flush what {} is there for, in a way that the recording need not show",
                describe(passed),
                describe(moved)
            ));
        }
        let may_run_more_often = ours.only_persists() && runs_earlier && self.analysis.reads_only_variables(ours);
        if let Some(who) = theirs.ends.as_ref().filter(|_| !may_run_more_often) {
            return Err(format!("{} may not come to its end ({who})", describe(passed)));
        }
        if let Some(who) = &ours.ends {
            return Err(format!("{} may not come to its end ({who})", describe(moved)));
        }
        for (unit, effects, other) in [(passed, theirs, ours), (moved, ours, theirs)] {
            let is_harmless = other.only_persists() && self.analysis.reads_only_variables(other);
            if let Some(what) = effects.fixed.as_ref().filter(|_| !is_harmless) {
                return Err(format!("{} {what}", describe(unit)));
            }
        }
        let function = self.code[moved].first().and_then(|at| at.function());
        if self.analysis.conflict(ours, theirs, function) {
            return Err(format!(
                "{} and {} may touch the same memory, and one of them writes it",
                describe(moved),
                describe(passed)
            ));
        }
        Ok(())
    }

    /// Whether the statement may flush or wait for something that a path does which the recording need not show: what comes behind the statement
    /// would no longer be behind that.
    fn may_be_pending(&self, unit: usize) -> bool {
        if !self.only_persists(unit) && self.branches(unit) {
            return self.effects(unit).fences;
        }
        // Up to the fence before it, which has waited for what was flushed earlier.
        let unfenced = (0..unit).rev().take_while(|&earlier| {
            !(self.only_persists(earlier) && self.always_fences(earlier) && self.settles(earlier))
        });
        unfenced.into_iter().any(|earlier| {
            let code = self.code_before(earlier, unit);
            let effects = self.analysis.of(code.iter().copied());
            let settles = !code.iter().any(|at| self.analysis.may_leave_pending(*at));
            // What flushes and does nothing else flushes what it is given, however that is written, if it always does.
            let branches = match self.only_persists(earlier) {
                true => self.branches_itself(earlier) || (self.quiet[earlier] && branches(&code)),
                false => branches(&code),
            };
            let is_served = || self.analysis.may_flush_stores_of(self.effects(unit), &effects, true);
            // What stores and flushes at once may be given another place next time.
            effects.leaves_pending
                || (branches && effects.needs_fence() && !settles)
                || ((branches || !self.only_persists(unit)) && is_served())
        })
    }

    /// The code of a statement from which another one may be reached: not that of an error, which returns.
    fn code_before(&self, earlier: usize, unit: usize) -> Vec<Value<'m>> {
        let targets: FxHashSet<Block<'m>> = self.code[unit].iter().filter_map(|at| at.block()).collect();
        let reaches = |from: Block<'m>| {
            let mut seen = FxHashSet::default();
            let mut open = vec![from];
            while let Some(block) = open.pop() {
                if targets.contains(&block) {
                    return true;
                }
                if seen.insert(block) {
                    open.extend(block.successors());
                }
            }
            false
        };
        let mut known: FxHashMap<Block<'m>, bool> = FxHashMap::default();
        let mut is_before = |at: &Value<'m>| {
            at.block()
                .is_none_or(|block| *known.entry(block).or_insert_with(|| reaches(block)))
        };
        self.code[earlier].iter().copied().filter(|at| is_before(at)).collect()
    }

    fn branches_itself(&self, unit: usize) -> bool {
        self.code[unit].iter().any(|at| at.is_branch())
    }

    fn branches(&self, unit: usize) -> bool {
        branches(&self.code[unit])
    }

    /// Whether a flush or fence that comes before the statement would miss something that it does only now and then; what it always does, the recording shows.
    fn may_be_missed(&self, persisting: &Effects<'m>, passed: usize) -> bool {
        let effects = self.effects(passed);
        let branches = self.branches(passed);
        effects.stores_anywhere
            || (branches && effects.needs_fence() && !self.settles(passed))
            || self.analysis.may_flush_stores_of(persisting, effects, branches)
    }

    /// A label in the code, also one of a `switch` around it.
    fn label_in(&self, node: NodeId) -> Option<&'static str> {
        let tree = &self.list.tree;
        let kinds = tree.descendants(node).map(|inner| (inner, tree.kind(inner)));
        let mut labels = kinds.filter_map(|(inner, kind)| match kind {
            EntityKind::LabelStmt => Some("a label"),
            EntityKind::CaseStmt | EntityKind::DefaultStmt => {
                let is_own = tree
                    .ancestors(inner)
                    .take_while(|outer| *outer >= node)
                    .any(|outer| tree.kind(outer) == EntityKind::SwitchStmt);
                (!is_own).then_some("a case of a switch")
            }
            _ => None,
        });
        labels.next()
    }

    /// What in the code leads out of it.
    fn leaves(&self, node: NodeId) -> Option<&'static str> {
        use EntityKind::*;
        let tree = &self.list.tree;
        let is_within = |inner: NodeId, kinds: &[EntityKind]| {
            let mut around = tree.ancestors(inner).take_while(|outer| *outer >= node);
            around.any(|outer| kinds.contains(&tree.kind(outer)))
        };
        const LOOPS: [EntityKind; 4] = [WhileStmt, ForStmt, DoStmt, ForRangeStmt];
        let mut ways = tree.descendants(node).filter_map(|inner| {
            if is_within(inner, &[LambdaExpr]) {
                return None;
            }
            match tree.kind(inner) {
                ReturnStmt => Some("a return"),
                GotoStmt | IndirectGotoStmt => Some("a goto"),
                ThrowExpr => Some("a throw"),
                BreakStmt => (!is_within(inner, &LOOPS) && !is_within(inner, &[SwitchStmt])).then_some("a break"),
                ContinueStmt => (!is_within(inner, &LOOPS)).then_some("a continue"),
                _ => None,
            }
        });
        ways.next()
    }

    /// Names that a statement of the list declares in it.
    fn declared_in(&self, unit: usize) -> Vec<String> {
        let tree = &self.list.tree;
        let node = self.list.units[unit].node;
        if tree.kind(node) != EntityKind::DeclStmt {
            return Vec::new();
        }
        let children = tree.nodes[node].children.iter();
        let constants = tree
            .descendants(node)
            .filter(|inner| tree.kind(*inner) == EntityKind::EnumConstantDecl);
        children
            .copied()
            .chain(constants)
            .map(|child| tree.name(child))
            .filter(|name| !name.is_empty())
            .collect()
    }

    /// Whether a statement declares something else than variables: a type, its constants.
    fn declares_by_name(&self, unit: usize) -> bool {
        let tree = &self.list.tree;
        let node = self.list.units[unit].node;
        let mut children = tree.nodes[node].children.iter();
        tree.kind(node) == EntityKind::DeclStmt && children.any(|child| tree.kind(*child) != EntityKind::VarDecl)
    }

    /// Whether not all of the statement is spelled where it stands.
    fn uses_macro(&self, unit: usize) -> bool {
        let tree = &self.list.tree;
        let range = &self.list.units[unit].range;
        tree.macros
            .iter()
            .any(|(used, _)| used.start < range.end && range.start < used.end)
    }

    /// Also by a macro that it uses.
    fn mentions(&self, unit: usize, name: &str) -> bool {
        let tree = &self.list.tree;
        let unit = &self.list.units[unit];
        let mut tokens = tree.file.tokens(unit.range.clone()).into_iter();
        let mut refers = tree.descendants(unit.node);
        tokens.any(|token| token.kind == TokenKind::Word && tree.file.token_text(token) == name)
            || refers.any(|inner| {
                tree.name(inner).split_whitespace().last() == Some(name) && !self.is_member_of_something(inner)
            })
    }

    /// Whether it names a member behind an expression: `o.oid` is no use of a variable `oid`. A member of `this` that is named by itself has no expression.
    fn is_member_of_something(&self, node: NodeId) -> bool {
        let tree = &self.list.tree;
        let is_expression = |child: NodeId| tree.nodes[child].entity.is_expression();
        let node = tree.strip(node);
        tree.kind(node) == EntityKind::MemberRefExpr && tree.child(node, 0).is_some_and(is_expression)
    }

    /// Whether a statement flushes a member by its name that the other stores.
    fn flushes(&self, flush: usize, unit: usize) -> bool {
        self.only_persists(flush)
            && self.code[unit].iter().any(|store| {
                let mut flushing = self.code[flush].iter();
                flushing.any(|at| self.analysis.flushes_member(*store, *at))
            })
    }

    fn has_flush(&self, unit: usize) -> bool {
        (unit + 1..self.list.units.len()).any(|flush| self.flushes(flush, unit))
    }

    /// Whether a statement comes behind the flush of the very member that it stores, and no other flush of that follows: that it shares a line with what is flushed
    /// later may be a matter of where the object lies.
    pub(super) fn loses_flush(&self, order: &[(usize, bool)]) -> bool {
        order.iter().enumerate().any(|(index, &(unit, moved))| {
            let mut later = order[index + 1..].iter();
            moved && self.has_flush(unit) && !later.any(|&(flush, _)| self.flushes(flush, unit))
        })
    }

    /// Whether what has to persist first has a flush of its own, and not in front of what comes second.
    pub(super) fn is_flushed_late(&self, order: &[(usize, bool)], before: &[usize], after: &[usize]) -> bool {
        let place = |unit: &usize| order.iter().position(|(other, _)| other == unit);
        let first = after.iter().filter_map(place).min().unwrap_or(order.len());
        before.iter().any(|unit| {
            let start = place(unit).map_or(first, |at| at.min(first));
            let mut between = order[start..first].iter();
            self.has_flush(*unit) && !between.any(|&(flush, _)| self.flushes(flush, *unit))
        })
    }

    /// Checks a whole arrangement: every two units that change places, of which at least one is marked as moved.
    pub(super) fn check_order(&self, order: &[(usize, bool)]) -> Result<(), String> {
        for (index, &(first, first_moved)) in order.iter().enumerate() {
            for &(second, second_moved) in &order[index + 1..] {
                if second > first {
                    continue;
                }
                // `second` came first.
                match (first_moved, second_moved) {
                    (true, _) => self.check(first, second)?,
                    (false, true) => self.check(second, first)?,
                    (false, false) => {}
                }
            }
        }
        Ok(())
    }
}

/// Whether code does not always do the same, for all that is seen of it here.
fn branches(code: &[Value]) -> bool {
    let mut called = code.iter().flat_map(|at| {
        let callbacks = at.is_call().then(|| at.arguments()).into_iter().flatten();
        at.called_function()
            .into_iter()
            .chain(callbacks.filter(|argument| argument.is_function()))
    });
    code.iter().any(|at| at.is_branch()) || called.any(|function| function.has_body() && !is_pointing(function))
}
