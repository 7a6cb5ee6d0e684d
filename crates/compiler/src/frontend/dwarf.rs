//! Debug info's own numbers: DWARF tags, and LLVM's flags.

pub const ARRAY: u16 = 0x01;
pub const CLASS: u16 = 0x02;
pub const ENUMERATION: u16 = 0x04;
pub const MEMBER: u16 = 0x0d;
pub const POINTER: u16 = 0x0f;
pub const REFERENCE: u16 = 0x10;
pub const STRUCTURE: u16 = 0x13;
pub const TYPEDEF: u16 = 0x16;
pub const UNION: u16 = 0x17;
pub const INHERITANCE: u16 = 0x1c;
pub const CONST: u16 = 0x26;
pub const BASE: u16 = 0x24;
pub const VOLATILE: u16 = 0x35;
pub const RESTRICT: u16 = 0x37;
pub const NAMESPACE: u16 = 0x39;
pub const RVALUE_REFERENCE: u16 = 0x42;
pub const TEMPLATE_ALIAS: u16 = 0x43;
pub const ATOMIC: u16 = 0x47;

pub const FLAG_VIRTUAL: i32 = 1 << 5;
pub const FLAG_STATIC: i32 = 1 << 12;
pub const FLAG_FORWARD: i32 = 1 << 2;
