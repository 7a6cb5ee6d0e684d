//! How a program says flush and fence.
//!
//! In this order: functions and macros of its own that it uses, libpmem's or libpmemobj's if it is linked with them, functions of its own that nobody calls,
//! and the functions of a small header that is added to the tree. Each of the three (flush, fence, and both in one call) is looked for on its own.

mod helpers;
mod interpret;
mod macros;
mod resolve;
mod unused;

use super::edits::After;
use super::written::Flushed;
pub(crate) use resolve::Idioms;

/// The header that programs without an idiom get.
pub(crate) const HEADER: &str = include_str!("crashproof_pm.h");
pub(crate) const HEADER_NAME: &str = "crashproof_pm.h";

/// How to flush and fence at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Idiom {
    pub flush: RangeFunction,
    /// Flushes and fences.
    pub persist: Option<RangeFunction>,
    /// The same for what lies within a line, where the program has only that.
    pub flush_line: Option<RangeFunction>,
    pub persist_line: Option<RangeFunction>,
    pub fence: Fence,
}

/// A function of a range, or of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeFunction {
    pub name: String,
    /// Arguments in front of the range.
    pub leading: Vec<String>,
    pub address: AddressType,
    /// Takes no size.
    pub is_of_line: bool,
    /// What declares it, if it is not declared already.
    pub include: Option<Include>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fence {
    /// Without the `;`.
    pub call: String,
    pub include: Option<Include>,
}

/// The type that the function takes an address as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum AddressType {
    /// `const volatile void *`, or a macro's argument.
    #[default]
    Any,
    /// A pointer to void, the type.
    Void(String),
    /// A pointer to characters, the type.
    Characters(String),
    /// Something else, which always needs a cast.
    Cast(String),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Include {
    /// As it is written behind `#include`.
    Spelled(String),
    /// The header of ours.
    Header,
    /// A header of the tree, by its path.
    Tree(std::path::PathBuf),
}

/// A statement, and what declares the function that it calls.
type Call<'a> = (String, Option<&'a Include>);

impl Idiom {
    pub(crate) fn header() -> Idiom {
        let function = |name: &str| RangeFunction {
            name: name.into(),
            include: Some(Include::Header),
            ..RangeFunction::default()
        };
        Idiom {
            flush: function("crashproof_flush"),
            persist: Some(function("crashproof_persist")),
            flush_line: None,
            persist_line: None,
            fence: Fence {
                call: "crashproof_fence()".into(),
                include: Some(Include::Header),
            },
        }
    }

    pub(crate) fn libpmem() -> Idiom {
        let include = Some(Include::Spelled("<libpmem.h>".into()));
        let function = |name: &str| RangeFunction {
            name: name.into(),
            address: AddressType::Void("const void *".into()),
            include: include.clone(),
            ..RangeFunction::default()
        };
        Idiom {
            flush: function("pmem_flush"),
            persist: Some(function("pmem_persist")),
            flush_line: None,
            persist_line: None,
            fence: Fence {
                call: "pmem_drain()".into(),
                include: include.clone(),
            },
        }
    }

    /// With a pool that is at hand.
    pub(crate) fn libpmemobj(pool: &str) -> Idiom {
        let function = |name: &str| RangeFunction {
            name: name.into(),
            leading: vec![pool.into()],
            address: AddressType::Void("const void *".into()),
            ..RangeFunction::default()
        };
        Idiom {
            flush: function("pmemobj_flush"),
            persist: Some(function("pmemobj_persist")),
            flush_line: None,
            persist_line: None,
            fence: Fence {
                call: format!("pmemobj_drain({pool})"),
                include: None,
            },
        }
    }

    /// Statements, with their `;`.
    pub(crate) fn statements(&self, after: &After) -> Vec<String> {
        self.calls(after).into_iter().map(|(statement, _)| statement).collect()
    }

    /// What has to be included for them.
    pub(crate) fn includes(&self, after: &After) -> Vec<Include> {
        self.calls(after)
            .into_iter()
            .filter_map(|(_, include)| include.cloned())
            .collect()
    }

    fn calls(&self, after: &After) -> Vec<Call<'_>> {
        let fence = (format!("{};", self.fence.call), self.fence.include.as_ref());
        if let ([flush], true) = (&after.flushes[..], after.fence) {
            let of_line = self.persist_line.as_ref().filter(|_| flush.is_in_one_line);
            let has_own_line = self.flush_line.is_some() && flush.is_in_one_line;
            if let Some(persist) = of_line.or(self.persist.as_ref().filter(|_| !has_own_line)) {
                return vec![persist.call(flush)];
            }
        }
        let mut calls: Vec<Call> = after.flushes.iter().map(|flush| self.flush_call(flush)).collect();
        if after.fence {
            calls.push(fence);
        }
        calls
    }

    fn flush_call(&self, flush: &Flushed) -> Call<'_> {
        let of_line = self.flush_line.as_ref().filter(|_| flush.is_in_one_line);
        of_line.unwrap_or(&self.flush).call(flush)
    }
}

impl RangeFunction {
    fn call(&self, flushed: &Flushed) -> Call<'_> {
        let pointer = &flushed.pointer;
        let cast = match &self.address {
            AddressType::Void(ty) if pointer.is_const_or_volatile => Some(ty),
            AddressType::Characters(ty) if pointer.is_const_or_volatile || !pointer.is_char => Some(ty),
            AddressType::Cast(ty) => Some(ty),
            _ => None,
        };
        let address = match cast {
            Some(ty) => format!("({ty}){}", operand(&flushed.address)),
            None => flushed.address.clone(),
        };
        let size = (!self.is_of_line).then_some(flushed.size.as_str());
        let leading = self.leading.iter().map(String::as_str);
        let arguments: Vec<&str> = leading.chain([&*address]).chain(size).collect();
        (
            format!("{}({});", self.name, arguments.join(", ")),
            self.include.as_ref(),
        )
    }
}

/// Behind a cast.
fn operand(text: &str) -> String {
    let is_unary = !text.contains([' ', '+', '?']) || text.starts_with('&');
    match is_unary {
        true => text.into(),
        false => format!("({text})"),
    }
}
