//! Before solving: which variables will have the same points-to set whatever that is, and which none.
//!
//! Hash-based value numbering (HVN of Hardekopf and Lin, SAS 2007): a variable's number stands for what goes into it, and variables of one number are one.
//! Beyond the paper, shifts and loads are numbered by the pointer that they start from, so that all loads of a field through one pointer are one (at
//! `-O0`, each mention of `p->next` is a load of its own). A variable that is met again on the way to itself gets a number of its own; nothing is lost but a chance.

use rustc_hash::FxHashMap;

use super::constraints::{Constraint, Constraints, ObjectId, Variable};
use super::offsets::Shift;

/// What goes into a variable. Before numbering the numbers are those of variables, after it of what goes in there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Input {
    Address(ObjectId, u32),
    Copy(u32),
    Shift(u32, Shift),
    Load(u32),
    /// By calls through pointers, unknown code or integers: known only later.
    Later(u32),
}

/// The number of what is never anything.
const NOTHING: u32 = 0;

pub(super) struct Numbers {
    of: Vec<u32>,
    /// Those for which one shift or one load is all that goes in.
    is_alone: Vec<bool>,
}

impl Numbers {
    /// Variables with the same number have the same points-to set.
    pub(super) fn number(&self, variable: Variable) -> u32 {
        self.of[variable.0 as usize]
    }

    pub(super) fn is_nothing(&self, variable: Variable) -> bool {
        self.number(variable) == NOTHING
    }

    pub(super) fn is_alone(&self, variable: Variable) -> bool {
        self.is_alone[self.number(variable) as usize]
    }

    pub(super) fn of(problem: &Constraints) -> Numbers {
        let inputs = Inputs::of(problem);
        let mut numbering = Numbering {
            inputs: &inputs,
            of: vec![None; problem.variables as usize],
            numbers: FxHashMap::default(),
            is_alone: vec![false],
        };
        for variable in 0..problem.variables {
            numbering.visit(variable);
        }
        Numbers {
            of: numbering.of.into_iter().map(Option::unwrap_or_default).collect(),
            is_alone: numbering.is_alone,
        }
    }
}

/// The inputs of each variable, one after the other.
struct Inputs {
    start: Vec<u32>,
    all: Vec<Input>,
}

impl Inputs {
    fn of(problem: &Constraints) -> Inputs {
        let mut pairs: Vec<(u32, Input)> = Vec::new();
        let mut later = |variable: Variable| pairs.push((variable.0, Input::Later(variable.0)));
        later(Variable::ESCAPED);
        let mut is_pointed_to = vec![false; problem.objects.len()];
        for constraint in &problem.constraints {
            match constraint {
                Constraint::Address { object, .. } => is_pointed_to[object.0 as usize] = true,
                Constraint::FromInteger { to, .. } => later(*to),
                Constraint::Call(call) => call.result.into_iter().for_each(&mut later),
                _ => {}
            }
        }
        for (object, _) in problem.objects.iter().zip(is_pointed_to).filter(|(_, is)| *is) {
            let parameters = object.function.iter().flat_map(|function| &function.parameters);
            parameters.flatten().copied().for_each(&mut later);
        }
        for constraint in &problem.constraints {
            pairs.push(match *constraint {
                Constraint::Address { to, object, offset } => (to.0, Input::Address(object, offset)),
                Constraint::Copy { to, from } => (to.0, Input::Copy(from.0)),
                Constraint::Shift {
                    to,
                    from,
                    shift: Shift::By(0),
                } => (to.0, Input::Copy(from.0)),
                Constraint::Shift { to, from, shift } => (to.0, Input::Shift(from.0, shift)),
                Constraint::Load { to, pointer } => (to.0, Input::Load(pointer.0)),
                _ => continue,
            });
        }
        pairs.sort_unstable();
        let mut start = vec![0u32; problem.variables as usize + 1];
        pairs
            .iter()
            .for_each(|(variable, _)| start[*variable as usize + 1] += 1);
        (1..start.len()).for_each(|at| start[at] += start[at - 1]);
        Inputs {
            start,
            all: pairs.into_iter().map(|(_, input)| input).collect(),
        }
    }

    fn range(&self, variable: u32) -> std::ops::Range<usize> {
        self.start[variable as usize] as usize..self.start[variable as usize + 1] as usize
    }
}

struct Numbering<'a> {
    inputs: &'a Inputs,
    of: Vec<Option<u32>>,
    numbers: FxHashMap<Vec<Input>, u32>,
    is_alone: Vec<bool>,
}

impl Numbering<'_> {
    /// Numbers all that goes into a variable, then itself; without recursion.
    fn visit(&mut self, variable: u32) {
        let mut path = vec![(variable, self.inputs.range(variable))];
        let mut is_open = rustc_hash::FxHashSet::from_iter([variable]);
        if self.of[variable as usize].is_some() {
            return;
        }
        while let Some((variable, rest)) = path.last_mut() {
            let next = rest.next().map(|at| self.inputs.all[at]);
            match next {
                Some(Input::Copy(from) | Input::Shift(from, _) | Input::Load(from)) => {
                    if self.of[from as usize].is_none() && is_open.insert(from) {
                        path.push((from, self.inputs.range(from)));
                    }
                }
                Some(_) => {}
                None => {
                    let variable = *variable;
                    self.number(variable);
                    path.pop();
                }
            }
        }
    }

    fn number(&mut self, variable: u32) {
        let mut inputs = Vec::new();
        for input in &self.inputs.all[self.inputs.range(variable)] {
            let from = match *input {
                Input::Copy(from) if from == variable => continue,
                Input::Copy(from) | Input::Shift(from, _) | Input::Load(from) => match self.of[from as usize] {
                    Some(NOTHING) => continue,
                    Some(number) => number,
                    // On the way to itself.
                    None => {
                        let number = self.new_number(false);
                        self.of[variable as usize] = Some(number);
                        return;
                    }
                },
                _ => 0,
            };
            inputs.push(match *input {
                Input::Copy(_) => Input::Copy(from),
                Input::Shift(_, shift) => Input::Shift(from, shift),
                Input::Load(_) => Input::Load(from),
                other => other,
            });
        }
        inputs.sort_unstable();
        inputs.dedup();
        let number = match inputs.as_slice() {
            [] => NOTHING,
            [Input::Copy(from)] => *from,
            _ => {
                let next = self.is_alone.len() as u32;
                let is_alone = matches!(inputs.as_slice(), [Input::Shift(..) | Input::Load(_)]);
                let number = *self.numbers.entry(inputs).or_insert(next);
                if number == next {
                    self.is_alone.push(is_alone);
                }
                number
            }
        };
        self.of[variable as usize] = Some(number);
    }

    fn new_number(&mut self, is_alone: bool) -> u32 {
        self.is_alone.push(is_alone);
        self.is_alone.len() as u32 - 1
    }
}
