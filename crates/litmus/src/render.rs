//! Operations and properties as text.

use std::fmt::{Display, Formatter, Result};

use crate::{Action, Litmus, Op, Property, Repair, StoreKind};

/// An operation as a line of a litmus file.
pub struct Line<'a>(pub &'a Litmus, pub &'a Op);

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter) -> Result {
        let Line(litmus, op) = self;
        if op.thread != 0 {
            write!(f, "{}: ", litmus.threads[op.thread as usize])?;
        }
        match &op.action {
            Action::Store(id) => {
                let store = &litmus.stores[*id];
                let word = match store.kind {
                    StoreKind::Plain => "store",
                    StoreKind::Nontemporal => "ntstore",
                    StoreKind::Locked => "rmw",
                };
                write!(f, "{word} {} {:#x} {}", store.name, store.at.start, store.at.len)
            }
            Action::Flush(flush) => {
                let word = if flush.at_once { "clflush" } else { "flush" };
                match flush.names {
                    Some(store) => write!(f, "{word} {}", litmus.stores[store].name),
                    None => write!(f, "{word} {:#x}", flush.at.start),
                }
            }
            Action::Fence { full: true } => f.write_str("mfence"),
            Action::Fence { full: false } => f.write_str("fence"),
        }
    }
}

impl Litmus {
    pub fn property(&self, property: Property) -> String {
        let name = |store: usize| &self.stores[store].name;
        match property {
            Property::Durable(store) => format!("require durable {}", name(store)),
            Property::Before(first, second) => format!("require {} before {}", name(first), name(second)),
        }
    }

    /// The repaired file.
    pub fn repaired(&self, repair: &Repair) -> String {
        let mut text = String::new();
        for line in &repair.lines {
            text.push_str(&Line(self, &line.op).to_string());
            if line.times > 1 {
                text.push_str(&format!(" x{}", line.times));
            }
            text.push_str(match (line.added, line.moved) {
                (true, _) => "  # added",
                (_, true) => "  # moved",
                _ => "",
            });
            text.push('\n');
        }
        for &property in &self.properties {
            text.push_str(&self.property(property));
            text.push('\n');
        }
        text
    }
}

impl Display for Litmus {
    fn fmt(&self, f: &mut Formatter) -> Result {
        for (at, op) in self.ops.iter().enumerate() {
            match self.times(at) {
                1 => writeln!(f, "{}", Line(self, op))?,
                times => writeln!(f, "{} x{times}", Line(self, op))?,
            }
        }
        for &property in &self.properties {
            writeln!(f, "{}", self.property(property))?;
        }
        Ok(())
    }
}
