//! What functions of other modules do for a function that calls them: those of [`crashproof_library`], as far as they only read, copy,
//! fill, flush and fence.

use crashproof_library::{Effect, effects};

use crate::registers::ARGUMENTS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routine {
    NeverReturns,
    /// Asks the runtime whether it did what the instructions behind it do otherwise.
    Gate,
    Does(&'static [Effect]),
}

/// How the symbols of the gates begin that `crashproof cc` calls.
pub(super) const GATES: &str = "__crashproof_";

const NEVER_RETURN: [&str; 9] = [
    "abort",
    "exit",
    "_exit",
    "quick_exit",
    "__assert_fail",
    "__stack_chk_fail",
    "__cxa_throw",
    "_Unwind_Resume",
    "_ZSt9terminatev",
];

/// What the function by that name does; `None`: nobody knows, or more than is followed.
pub fn routine(name: &str) -> Option<Routine> {
    let name = name.split('@').next().unwrap_or(name);
    if NEVER_RETURN.contains(&name) {
        return Some(Routine::NeverReturns);
    }
    let effects = effects(name)?;
    effects.iter().all(is_followed).then_some(Routine::Does(effects))
}

fn is_followed(effect: &Effect) -> bool {
    let in_register = |argument: u32| (argument as usize) < ARGUMENTS.len();
    match *effect {
        Effect::Copies { to, from, .. } | Effect::CopiesText { to, from, .. } => in_register(to) && in_register(from),
        Effect::Fills { to, value, .. } => in_register(to) && in_register(value),
        Effect::Flushes { at, .. } | Effect::Persists { at, .. } => in_register(at),
        Effect::Fences | Effect::TakesFlags(_) | Effect::ReachesFurther => true,
        Effect::Returns(_) | Effect::ReturnsInside(_) | Effect::DependsOn(_) | Effect::DependsOnAll => true,
        ref other => other.is_read(),
    }
}
