//! Stand-ins for types where the code has none: a function is the type, a call of it the instance, and the path of code
//! addresses from the function to the store is the field.
//!
//! Squint takes type, instance and field from debug information of the program's own structs; an unmodified binary or library has
//! none that lead from a store to a struct. What a call does is an update of high temporal locality, too, by construction, and
//! the k-th store of one place in one call is like the k-th of another call. Calls within calls are the composite types: a store is
//! an update of the function that makes it, of its caller, and so on. Functions that were inlined count as functions where
//! debug information tells. Frames of the C library count to their callers: `memcpy` has no purpose of its own.
//!
//! Calls are told apart by the stacks of stores, flushes and fences. Two calls from the same place with nothing but themselves
//! in between look like one, until a place comes up again with all before it persistent: that is the first epoch criterion.

use std::sync::Arc;

use crashproof_stacks::{Stacks, file_name, is_language_runtime};
use crashproof_trace::{Event, StackId, Tables};
use rustc_hash::FxHashMap;

use super::order::Update;
use super::subject::{InCall, Instance, Subject, Subjects, TypeKey};
use crate::hash::mix;

/// Innermost calls that a store counts for.
const MAX_LEVELS: usize = 12;
/// What the hash of a field begins with. Not 0: `mix(0)` is 0, and position 0 is that of a store without a call stack.
const OWN_STORE: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CallFrame {
    function: TypeKey,
    /// Where in the function.
    position: u64,
    /// It is known which function it is.
    named: bool,
}

/// A call that is going on.
#[derive(Clone, Copy)]
struct Active {
    frame: CallFrame,
    instance: u64,
}

#[derive(Default)]
pub(crate) struct Calls {
    stacks: Stacks,
    /// By stack: outermost first; without frames of the C library.
    frames: Vec<Option<Arc<[CallFrame]>>>,
    functions: Vec<String>,
    numbers: FxHashMap<String, TypeKey>,
    places: FxHashMap<u64, String>,
    /// Of a field: the position in its function, and the field in the function called there, if the store is not its own.
    paths: FxHashMap<u64, (u64, Option<u64>)>,
    /// By thread, outermost first.
    active: Vec<Vec<Active>>,
    calls: u64,
}

impl Calls {
    fn function(&mut self, name: String) -> TypeKey {
        if let Some(&number) = self.numbers.get(&name) {
            return number;
        }
        let number = self.functions.len() as TypeKey;
        self.functions.push(name.clone());
        self.numbers.insert(name, number);
        number
    }

    fn frames(&mut self, stack: StackId, tables: &Tables) -> Arc<[CallFrame]> {
        if let Some(Some(known)) = self.frames.get(stack.index()) {
            return known.clone();
        }
        let mut frames = Vec::new();
        for (depth, &frame) in tables.frames(stack).iter().enumerate() {
            let module = frame.module.and_then(|id| tables.module(id));
            let module = module.map_or("", |module| file_name(&module.path)).to_owned();
            if is_language_runtime(&module) {
                continue;
            }
            let address = mix(frame.address ^ u64::from(frame.module.map_or(0, |id| id.0)) << 48);
            let symbols = self.stacks.symbols(frame, depth > 0, tables).to_vec();
            for symbol in &symbols {
                let Some(function) = &symbol.function else { continue };
                if function == "_start" {
                    continue;
                }
                let name = format!("{function} ({module})");
                let file = symbol.file.as_deref().map(file_name);
                let (position, place) = match (file, symbol.line) {
                    (Some(file), Some(line)) => {
                        let column = symbol.column.unwrap_or(0);
                        let bytes = file.bytes().fold(0, |sum, byte| mix(sum ^ u64::from(byte)));
                        (
                            mix(bytes ^ u64::from(line) << 20 ^ u64::from(column)),
                            format!("{file}:{line}"),
                        )
                    }
                    _ => (address, format!("{module}+{:#x}", frame.address)),
                };
                self.places.entry(position).or_insert(place);
                let function = self.function(name);
                frames.push(CallFrame {
                    function,
                    position,
                    named: true,
                });
            }
            if symbols.iter().all(|symbol| symbol.function.is_none()) {
                // Only its callers tell which function it is, and they have it by the return address.
                let function = self.function(format!("? ({module})"));
                self.places
                    .entry(address)
                    .or_insert(format!("{module}+{:#x}", frame.address));
                frames.push(CallFrame {
                    function,
                    position: address,
                    named: false,
                });
            }
        }
        if frames.is_empty() {
            let function = self.function("?".into());
            frames.push(CallFrame {
                function,
                position: 0,
                named: false,
            });
        }
        frames.reverse();
        let frames = without_recursion(frames);
        let frames: Arc<[CallFrame]> = frames.into();
        if self.frames.len() <= stack.index() {
            self.frames.resize(stack.index() + 1, None);
        }
        self.frames[stack.index()] = Some(frames.clone());
        frames
    }
}

/// From the outermost call: where a function is called again below itself, what lies between goes. How deep a tree is makes
/// no other behaviour.
fn without_recursion(frames: Vec<CallFrame>) -> Vec<CallFrame> {
    let mut path: Vec<CallFrame> = Vec::new();
    for frame in frames {
        let is_same =
            |outer: &CallFrame| outer.function == frame.function && (frame.named || outer.position == frame.position);
        if let Some(again) = path.iter().position(is_same) {
            path.truncate(again);
        }
        path.push(frame);
    }
    path
}

impl Subjects for Calls {
    fn event(&mut self, event: &Event<'_>, tables: &Tables, ended: &mut Vec<Instance>) {
        if event.stack == StackId(0) {
            return;
        }
        let frames = self.frames(event.stack, tables);
        let thread = event.thread.index();
        if self.active.len() <= thread {
            self.active.resize_with(thread + 1, Vec::new);
        }
        let active = &mut self.active[thread];
        // Calls that go on: those entered from the same places, and the function at the first that differs.
        let mut same = 0;
        while let (Some(call), Some(frame)) = (active.get_mut(same), frames.get(same)) {
            if call.frame.function != frame.function {
                break;
            }
            let moved = call.frame.position != frame.position;
            call.frame.position = frame.position;
            same += 1;
            if moved {
                break;
            }
        }
        ended.extend(active.drain(same..).map(|call| (call.frame.function, call.instance)));
        for &frame in &frames[same..] {
            self.calls += 1;
            active.push(Active {
                frame,
                instance: self.calls,
            });
        }
    }

    fn of(&mut self, update: &Update<'_>, tables: &Tables, out: &mut Vec<Subject>) {
        let frames = self.frames(update.stack, tables);
        let active = self.active.get(update.thread as usize).map_or(&[][..], Vec::as_slice);
        let mut field = OWN_STORE;
        let mut inner = None;
        let (mut inner_call, mut innermore) = (None, None);
        let first = out.len();
        for (depth, frame) in frames.iter().enumerate().rev().take(MAX_LEVELS) {
            field = mix(field ^ frame.position);
            self.paths.entry(field).or_insert((frame.position, inner));
            inner = Some(field);
            let instance = active.get(depth).map_or(0, |call| call.instance);
            out.push(Subject {
                instance: (frame.function, instance),
                field,
                call: Some(InCall {
                    path: 0,
                    place: frame.position,
                    inner: inner_call,
                    innermore,
                }),
            });
            innermore = inner_call;
            inner_call = Some(instance);
        }
        // The last one is of the outermost call.
        let calls = out[first..].iter_mut().filter_map(|subject| subject.call.as_mut());
        calls.for_each(|call| call.path = field);
    }

    fn site(&mut self, update: &Update<'_>, tables: &Tables) -> u64 {
        self.frames(update.stack, tables)
            .last()
            .map_or(0, |frame| frame.position)
    }

    fn type_name(&self, ty: TypeKey) -> String {
        self.functions.get(ty as usize).cloned().unwrap_or_default()
    }

    fn field_name(&self, _ty: TypeKey, field: u64) -> String {
        let mut names = Vec::new();
        let mut field = Some(field);
        // The bound is for fields that would be their own inner ones, should two hashes ever be equal.
        for _ in 0..MAX_LEVELS {
            let Some(&(position, inner)) = field.and_then(|field| self.paths.get(&field)) else {
                break;
            };
            names.extend(self.places.get(&position).map(String::as_str));
            field = inner;
        }
        names.join(" > ")
    }
}
