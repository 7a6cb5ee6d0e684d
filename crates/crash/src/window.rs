//! The part of a trace that is crashed: from the first event with one function in its call path to the first one after it
//! with another.

use crashproof_stacks::Stacks;
use crashproof_trace::{StackId, Tables};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Before,
    Within,
    After,
}

pub(crate) struct Window {
    from: Option<Function>,
    until: Option<Function>,
    place: Place,
    stacks: Stacks,
}

/// A function by name, and what is known of stacks: whether it is in their path.
struct Function {
    name: String,
    known: Vec<Option<bool>>,
}

impl Function {
    fn new(name: &str) -> Function {
        Function {
            name: name.into(),
            known: Vec::new(),
        }
    }

    fn is_in(&mut self, stack: StackId, stacks: &mut Stacks, tables: &Tables) -> bool {
        if let Some(Some(known)) = self.known.get(stack.index()) {
            return *known;
        }
        let frames = tables.frames(stack);
        let found = frames.iter().enumerate().any(|(depth, &frame)| {
            let symbols = stacks.symbols(frame, depth > 0, tables);
            let mut functions = symbols.iter().filter_map(|symbol| symbol.function.as_deref());
            functions.any(|function| function == self.name || without_parameters(function) == self.name)
        });
        if self.known.len() <= stack.index() {
            self.known.resize(stack.index() + 1, None);
        }
        self.known[stack.index()] = Some(found);
        found
    }
}

/// `ns::f(int, char) const` is `ns::f`; parentheses that are not the parameters' stay.
fn without_parameters(function: &str) -> &str {
    let Some(end) = function.rfind(')') else {
        return function;
    };
    let mut depth = 0;
    for (at, character) in function[..=end].char_indices().rev() {
        match character {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if at == 0 { function } else { &function[..at] };
        }
    }
    function
}

impl Window {
    pub(crate) fn new(from: Option<&str>, until: Option<&str>) -> Window {
        Window {
            place: if from.is_some() { Place::Before } else { Place::Within },
            from: from.map(Function::new),
            until: until.map(Function::new),
            stacks: Stacks::default(),
        }
    }

    /// Where the event with this call path is.
    #[inline]
    pub(crate) fn event(&mut self, stack: StackId, tables: &Tables) -> Place {
        let Window {
            from,
            until,
            place,
            stacks,
        } = self;
        let (awaited, next) = match place {
            Place::Before => (from, Place::Within),
            Place::Within => (until, Place::After),
            Place::After => return Place::After,
        };
        if let Some(function) = awaited
            && function.is_in(stack, stacks, tables)
        {
            *place = next;
        }
        *place
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_cut_off() {
        for (function, plain) in [
            ("insert", "insert"),
            ("map::insert(int, char const*) const", "map::insert"),
            ("(anonymous namespace)::f(void (*)(int))", "(anonymous namespace)::f"),
            ("T::operator()(int)", "T::operator()"),
            ("(anonymous namespace)", "(anonymous namespace)"),
        ] {
            assert_eq!(without_parameters(function), plain);
        }
    }
}
