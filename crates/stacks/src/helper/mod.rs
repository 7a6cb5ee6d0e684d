//! Which functions are helpers: they only do to their parameters what their callers asked for, so that the place to show is their caller.
//!
//! The evidence is what a function does to memory ([`Summary`]) and the rules on that (`rules`; docs/helpers.md
//! teaches them): every address that it stores to or flushes is computed from its parameters, and so on. `crashproof
//! cc` makes summaries of the front end's code and writes down what follows ([`JudgedFunctions`]). What that leaves
//! open is judged here by machine code, in `flow`. There a function that was inlined is judged by its own code, if
//! the module has it, else by the code that was made of it in its caller: what debug info says that it was given counts
//! as its parameters (`inlined`). In doubt a function is not a helper. The rest is up to `[[helper]]` in
//! crashproof.toml.

mod flow;
mod inlined;
mod library;
mod rules;
mod summary;
#[cfg(test)]
mod tests;
mod value;

use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crashproof_tables::JudgedFunctions;
use crashproof_trace::symbols::SourceFrame;
use iced_x86::Register;
use rustc_hash::FxHashMap;

use crate::code::{Code, Symbols};
use crate::registers::BY_NUMBER;
use flow::Followed;
use inlined::{Inlines, Instance, Parameter};
pub use library::{Routine, routine};
use rules::Subject;
pub use summary::{Act, Effect, MOST_EFFECTS, Summary, fill, of_library};
pub use value::{Root, Source, Value};

/// What is known of a module's functions.
pub(crate) struct Evidence {
    module: PathBuf,
    debug: PathBuf,
    judged: JudgedFunctions,
    /// Read when the judged functions leave something open.
    code: OnceCell<Option<ModuleCode>>,
}

impl Evidence {
    pub(crate) fn read(module: PathBuf, debug: PathBuf) -> Evidence {
        Evidence {
            judged: JudgedFunctions::read(&module),
            module,
            debug,
            code: OnceCell::new(),
        }
    }

    /// Which of the source frames at an address, innermost first, are of helpers.
    pub(crate) fn helpers(&self, address: u64, frames: &[SourceFrame]) -> Vec<bool> {
        let judged = |frame: &SourceFrame| {
            let (function, file) = frame.linkage_name.as_deref().zip(frame.file.as_deref())?;
            self.judged.is_helper(function, file)
        };
        let judged: Vec<Option<bool>> = frames.iter().map(judged).collect();
        if judged.last() == Some(&Some(true)) {
            // With all that is inlined there.
            return vec![true; frames.len()];
        }
        if let Some(judged) = judged.iter().copied().collect() {
            return judged;
        }
        let code = self
            .code
            .get_or_init(|| ModuleCode::read(&self.module, Some(&self.debug)));
        let by_code = match code {
            Some(code) => code.helpers(address, frames.len()),
            None => vec![false; frames.len()],
        };
        let both = judged.into_iter().zip(by_code);
        both.map(|(judged, by_code)| judged.unwrap_or(by_code)).collect()
    }
}

/// Calls within calls that are followed.
const MAX_CALLS: usize = 12;

/// Of the first vector register.
const FIRST_VECTOR: u16 = 17;

/// A module whose functions are judged, each once.
pub struct ModuleCode {
    code: Code,
    symbols: Symbols,
    /// Read when an inlined function is first asked for.
    inlines: OnceCell<Option<Inlines>>,
    debug: Option<PathBuf>,
    followed: RefCell<FxHashMap<u64, Option<Arc<Followed>>>>,
    verdicts: RefCell<FxHashMap<u64, bool>>,
    /// How many are being followed: a function, those that it calls, and so on.
    depth: RefCell<usize>,
}

impl ModuleCode {
    /// `module` has the code, `debug` the debug info; they may be the same.
    pub fn read(module: &Path, debug: Option<&Path>) -> Option<ModuleCode> {
        Some(ModuleCode {
            code: Code::read(module)?,
            symbols: Symbols::read([Some(module), debug].into_iter().flatten()),
            inlines: OnceCell::new(),
            debug: debug.map(Path::to_owned),
            followed: RefCell::default(),
            verdicts: RefCell::default(),
            depth: RefCell::default(),
        })
    }

    fn name_at(&self, address: u64) -> Option<&str> {
        self.symbols.starting_at(address).map(|(_, name)| name)
    }

    /// The function that begins at an address; `None`: there is none, or it is being followed.
    fn followed(&self, start: u64) -> Option<Arc<Followed>> {
        if let Some(known) = self.followed.borrow().get(&start) {
            return known.clone();
        }
        let (range, _) = self.symbols.starting_at(start)?;
        if *self.depth.borrow() >= MAX_CALLS {
            return None;
        }
        *self.depth.borrow_mut() += 1;
        // It may call itself by way of others.
        self.followed.borrow_mut().insert(start, None);
        let followed = Some(Arc::new(flow::follow(self, &range)));
        self.followed.borrow_mut().insert(start, followed.clone());
        *self.depth.borrow_mut() -= 1;
        followed
    }

    /// Whether the function that begins at an address is a helper.
    fn is_helper(&self, start: u64) -> bool {
        if let Some(known) = self.verdicts.borrow().get(&start) {
            return *known;
        }
        let is_helper = self
            .followed(start)
            .is_some_and(|followed| followed.summary.is_helper());
        self.verdicts.borrow_mut().insert(start, is_helper);
        is_helper
    }

    /// Functions that have code of their own and whether they are helpers.
    pub fn functions(&self) -> impl Iterator<Item = (&str, bool)> {
        let all = self.symbols.all();
        all.map(|(range, name)| (name, self.is_helper(range.start)))
    }

    /// Which of the `count` source frames at an address, innermost first, are of helpers.
    pub(crate) fn helpers(&self, address: u64, count: usize) -> Vec<bool> {
        let Some((function, _)) = self.symbols.around(address) else {
            return vec![false; count];
        };
        if self.is_helper(function.start) {
            return vec![true; count];
        }
        let instances = match count > 1 {
            true => self.inlined_at(address),
            false => Vec::new(),
        };
        let mut helpers = vec![false; count];
        if instances.len() + 1 == count {
            for (is_helper, instance) in helpers.iter_mut().zip(&instances) {
                *is_helper = self.is_inlined_helper(instance, &function);
            }
        }
        helpers
    }

    /// The inlined functions that the code at an address is of, innermost first.
    fn inlined_at(&self, address: u64) -> Vec<Instance> {
        let inlines = self.inlines.get_or_init(|| Inlines::read(self.debug.as_deref()?));
        inlines
            .as_ref()
            .and_then(|inlines| inlines.at(address))
            .unwrap_or_default()
    }

    fn is_inlined_helper(&self, instance: &Instance, function: &Range<u64>) -> bool {
        if let Some(start) = instance.out_of_line {
            return self.is_helper(start);
        }
        let Some(followed) = self.followed(function.start) else {
            return false;
        };
        let is_within = |address: u64| instance.ranges.iter().any(|range| range.contains(&address));
        let at = |effect: &Effect| {
            followed
                .instructions
                .get(effect.index)
                .map_or(0, |instruction| instruction.ip())
        };
        let effects = followed.summary.effects.iter();
        let effects: Vec<&Effect> = effects.filter(|effect| is_within(at(effect))).collect();
        let (mut given, mut constants): (Vec<Root>, Vec<i64>) = (Vec::new(), Vec::new());
        let mut all = Vec::new();
        for parameter in &instance.parameters {
            constants.extend(parameter.constant);
            let start = instance.ranges.iter().map(|range| range.start).min().unwrap_or(0);
            let first = effects.first().map_or(start, |effect| at(effect));
            let values = match &parameter.range {
                Some(range) => self.given(parameter, range.start.max(start), function, &followed),
                // Code that is not optimised puts it into its word of the frame first.
                None => [start, first]
                    .into_iter()
                    .map(|at| self.given(parameter, at, function, &followed))
                    .find(|values| values.iter().any(Value::is_known))
                    .unwrap_or_default(),
            };
            for value in values {
                constants.extend(value.as_constant());
                given.extend_from_slice(value.roots());
                all.push(value);
            }
        }
        given.retain(|root| !matches!(root.source, Source::Made(at, _) if is_within(at)));
        Subject {
            summary: &followed.summary,
            effects,
            given: &|root| {
                let prefixes = given.iter().filter(|given| given.source == root.source);
                let lengths =
                    prefixes.filter_map(|given| root.path.starts_with(&given.path).then_some(given.path.len()));
                lengths.max()
            },
            is_given_constant: &|constant, size| {
                let mask = 1u64
                    .checked_shl(8 * u32::try_from(size).unwrap_or(8))
                    .map_or(u64::MAX, |bit| bit - 1);
                constants.iter().any(|given| (given ^ constant) as u64 & mask == 0)
            },
            values: &all,
            returned: None,
        }
        .is_helper()
    }

    /// What an argument of an inlined function is computed from, before the instruction at an address.
    fn given(&self, parameter: &Parameter, at: u64, function: &Range<u64>, followed: &Followed) -> Vec<Value> {
        let mut values = Vec::new();
        for register in &parameter.entry {
            if let Some(register) = BY_NUMBER.get(usize::from(*register)) {
                values.push(Value::source(Source::Register(register.number())));
            }
        }
        let state = followed
            .index(at)
            .and_then(|index| followed.state_before(self, function.start, index));
        let Some(state) = state else { return values };
        let register = |number: u16| match BY_NUMBER.get(usize::from(number)) {
            Some(register) => state.get(*register),
            None => match number.checked_sub(FIRST_VECTOR) {
                Some(vector @ 0..16) => state.get(Register::XMM0 + u32::from(vector)),
                _ => Value::Unknown,
            },
        };
        let word = |address: Value| match address {
            Value::Frame(Some(at)) => state.slot(at, 1).unwrap_or(Value::Unknown),
            address => address.read().unwrap_or(Value::Unknown),
        };
        for (number, offset) in &parameter.registers {
            values.push(register(*number).add(&Value::constant(*offset)));
        }
        for (number, offset) in &parameter.memory {
            values.push(word(register(*number).add(&Value::constant(*offset))));
        }
        for offset in &parameter.frame {
            // The stack pointer before the call is one word above where the function finds it.
            values.push(word(Value::Frame(Some(offset.wrapping_add(8)))));
        }
        values
    }
}
