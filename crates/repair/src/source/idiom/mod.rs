//! How a program says flush and fence.
//!
//! In this order: functions of its own, libpmem's or libpmemobj's if it is linked with them, and the functions of a small header that is added to the tree.

use super::edits::After;
use super::written::Flushed;

/// The header that programs without an idiom get.
pub const HEADER: &str = include_str!("crashproof_pm.h");
pub const HEADER_NAME: &str = "crashproof_pm.h";

/// How to flush and fence at a place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Idiom {
    pub flush: RangeFunction,
    /// Flushes and fences.
    pub persist: RangeFunction,
    /// A call, without the `;`.
    pub fence: String,
    /// What has to be included for it.
    pub includes: Vec<Include>,
}

/// A function of a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeFunction {
    pub name: String,
    /// Arguments in front of the range.
    pub leading: Vec<String>,
    pub address: AddressType,
}

/// The type that the function takes an address as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AddressType {
    /// `const volatile void *`.
    #[default]
    Any,
    /// `const void *` or `void *`.
    Void,
    /// Needs a cast to this type.
    Cast(String),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Include {
    /// As it is written behind `#include`.
    Spelled(String),
    /// The header of ours.
    Header,
}

impl Idiom {
    pub fn header() -> Idiom {
        let function = |name: &str| RangeFunction {
            name: name.into(),
            ..RangeFunction::default()
        };
        Idiom {
            flush: function("crashproof_flush"),
            persist: function("crashproof_persist"),
            fence: "crashproof_fence()".into(),
            includes: vec![Include::Header],
        }
    }

    pub fn libpmem() -> Idiom {
        let function = |name: &str| RangeFunction {
            name: name.into(),
            leading: Vec::new(),
            address: AddressType::Void,
        };
        Idiom {
            flush: function("pmem_flush"),
            persist: function("pmem_persist"),
            fence: "pmem_drain()".into(),
            includes: vec![Include::Spelled("<libpmem.h>".into())],
        }
    }

    /// Statements, with their `;`.
    pub fn statements(&self, after: &After) -> Vec<String> {
        if let ([flush], true) = (&after.flushes[..], after.fence) {
            return vec![self.persist.call(flush)];
        }
        let mut statements: Vec<String> = after.flushes.iter().map(|flush| self.flush.call(flush)).collect();
        if after.fence {
            statements.push(format!("{};", self.fence));
        }
        statements
    }
}

impl RangeFunction {
    fn call(&self, flushed: &Flushed) -> String {
        let address = match &self.address {
            AddressType::Void if flushed.pointer.is_const_or_volatile => {
                format!("(const void *){}", operand(&flushed.address))
            }
            AddressType::Cast(ty) => format!("({ty}){}", operand(&flushed.address)),
            _ => flushed.address.clone(),
        };
        let arguments: Vec<&str> = self
            .leading
            .iter()
            .map(String::as_str)
            .chain([&*address, &*flushed.size])
            .collect();
        format!("{}({});", self.name, arguments.join(", "))
    }
}

/// Behind a cast.
fn operand(text: &str) -> String {
    let is_unary = !text.contains([' ', '+', '-', '?']) || text.starts_with('&');
    match is_unary {
        true => text.into(),
        false => format!("({text})"),
    }
}
