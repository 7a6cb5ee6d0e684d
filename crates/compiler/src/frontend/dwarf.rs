//! Debug info's own numbers: DWARF tags, and LLVM's flags.

pub(super) const ARRAY: u16 = 0x01;
pub(super) const CLASS: u16 = 0x02;
pub(super) const ENUMERATION: u16 = 0x04;
pub(super) const MEMBER: u16 = 0x0d;
pub(super) const POINTER: u16 = 0x0f;
pub(super) const REFERENCE: u16 = 0x10;
pub(super) const STRUCTURE: u16 = 0x13;
pub(super) const TYPEDEF: u16 = 0x16;
pub(super) const UNION: u16 = 0x17;
pub(super) const INHERITANCE: u16 = 0x1c;
pub(super) const CONST: u16 = 0x26;
pub(super) const BASE: u16 = 0x24;
pub(super) const VOLATILE: u16 = 0x35;
pub(super) const RESTRICT: u16 = 0x37;
pub(super) const NAMESPACE: u16 = 0x39;
pub(super) const RVALUE_REFERENCE: u16 = 0x42;
pub(super) const TEMPLATE_ALIAS: u16 = 0x43;
pub(super) const ATOMIC: u16 = 0x47;

pub(super) const FLAG_VIRTUAL: i32 = 1 << 5;
pub(super) const FLAG_STATIC: i32 = 1 << 12;
pub(super) const FLAG_FORWARD: i32 = 1 << 2;
