//! The tables of a page: what occurs often is there once.

use std::collections::HashMap;
use std::hash::Hash;

use crashproof_finding as finding;
use crashproof_finding::stack::trimmed;

use super::data::{Frame, Page};
use super::excerpts::Excerpts;

/// Frames shown of one stack; deeper recursion tells nothing more.
const MAX_FRAMES: usize = 64;
/// When a page has so many frames, new stacks are shown only by their innermost frame.
const MANY_FRAMES: usize = 3000;
const FEW_FRAMES: usize = 1;
/// Characters of a function's name; templates can have thousands.
const MAX_NAME: usize = 200;

/// Values in the order of their first use, and where each is.
struct Interned<T> {
    values: Vec<T>,
    places: HashMap<T, usize>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Interned {
            values: Vec::new(),
            places: HashMap::new(),
        }
    }
}

impl<T: Clone + Eq + Hash> Interned<T> {
    fn add(&mut self, value: T) -> usize {
        if let Some(&place) = self.places.get(&value) {
            return place;
        }
        self.values.push(value.clone());
        self.places.insert(value, self.values.len() - 1);
        self.values.len() - 1
    }
}

pub(super) struct Tables {
    pub excerpts: Excerpts,
    frames: Interned<Frame>,
    stacks: Interned<Vec<usize>>,
    texts: Interned<String>,
    pm_files: Interned<String>,
    modules: Interned<String>,
}

impl Tables {
    pub(super) fn new(excerpts: Excerpts) -> Tables {
        Tables {
            excerpts,
            frames: Interned::default(),
            stacks: Interned::default(),
            texts: Interned::default(),
            pm_files: Interned::default(),
            modules: Interned::default(),
        }
    }

    pub(super) fn text(&mut self, text: &str) -> usize {
        self.texts.add(text.to_owned())
    }

    pub(super) fn pm_file(&mut self, path: &str) -> usize {
        self.pm_files.add(path.to_owned())
    }

    pub(super) fn frame(&mut self, frame: &finding::Frame) -> usize {
        let placed = frame.has_position();
        let file = frame.file.as_deref();
        let file = file.map(|file| self.excerpts.file(file, frame.module.as_deref()));
        let module = frame.module.as_deref().filter(|_| !placed);
        let frame = Frame {
            function: frame.function.as_deref().map(name),
            file,
            line: frame.line.filter(|_| placed),
            column: frame.column.filter(|&column| placed && column > 0),
            module: module.map(|module| self.modules.add(module.to_owned())),
            address: (!placed).then(|| format!("{:x}", frame.address)),
            inlined: frame.inlined,
        };
        self.frames.add(frame)
    }

    /// Without the C library's frames at its outer end.
    pub(super) fn stack(&mut self, stack: &[finding::Frame]) -> usize {
        let stack = trimmed(stack);
        let limit = match self.frames.values.len() < MANY_FRAMES {
            true => MAX_FRAMES,
            false => FEW_FRAMES,
        };
        let shown = &stack[..stack.len().min(limit)];
        let mut ids: Vec<usize> = shown.iter().map(|frame| self.frame(frame)).collect();
        if let Some(more) = stack.len().checked_sub(limit).filter(|&more| more > 0) {
            ids.push(self.frame(&finding::Frame {
                function: Some(format!("({more} more)")),
                ..finding::Frame::default()
            }));
        }
        self.stacks.add(ids)
    }

    /// Everything, with the source around every frame as far as there is room.
    pub(super) fn finish(mut self, page: &mut Page) {
        for frame in &self.frames.values {
            if let (Some(file), Some(line)) = (frame.file, frame.line) {
                self.excerpts.around_frame(file, line);
            }
        }
        page.files = self.excerpts.finish();
        page.frames = self.frames.values;
        page.stacks = self.stacks.values;
        page.texts = self.texts.values;
        page.pm_files = self.pm_files.values;
        page.modules = self.modules.values;
    }
}

/// As much of a function's name as is shown.
pub(super) fn name(function: &str) -> String {
    match function.char_indices().nth(MAX_NAME) {
        Some((at, _)) => format!("{}…", &function[..at]),
        None => function.to_owned(),
    }
}
