//! The runtime's own allocator. The program's `malloc` may be interrupted anywhere by our handlers, may itself live in
//! PM, and must not notice us; so nothing here goes through it. Size classes with free lists over mapped chunks; large
//! blocks are mapped directly. Whoever allocates outside a handler has signals blocked.

use crate::{spin::Spin, sys};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;

const SMALLEST: usize = 16;
const CLASSES: usize = 13;
const LARGEST: usize = SMALLEST << (CLASSES - 1);
const CHUNK: usize = 1 << 20;

pub(crate) struct Allocator {
    pub lock: Spin,
    state: UnsafeCell<State>,
}

struct State {
    free: [*mut u8; CLASSES],
    chunk: *mut u8,
    left: usize,
}

// SAFETY: `state` is only touched with `lock` held.
unsafe impl Sync for Allocator {}

impl Allocator {
    pub(crate) const fn new() -> Self {
        let state = State {
            free: [std::ptr::null_mut(); CLASSES],
            chunk: std::ptr::null_mut(),
            left: 0,
        };
        Allocator {
            lock: Spin::new(),
            state: UnsafeCell::new(state),
        }
    }
}

/// The class whose blocks hold `layout` with its alignment (block sizes are powers of two, blocks are size-aligned).
fn class(layout: Layout) -> Option<usize> {
    let size = layout.size().max(layout.align()).max(SMALLEST).next_power_of_two();
    (size <= LARGEST).then(|| (size / SMALLEST).trailing_zeros() as usize)
}

fn mapped_len(layout: Layout) -> u64 {
    layout.size().next_multiple_of(4096) as u64
}

// SAFETY: blocks are disjoint, large enough and aligned: power-of-two classes cut from page-aligned chunks at multiples
// of their size; mapped blocks are page-aligned (no layout here asks for more).
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = class(layout) else {
            return sys::map_anonymous(mapped_len(layout)).unwrap_or(std::ptr::null_mut());
        };
        let size = SMALLEST << class;
        let _held = self.lock.lock();
        // SAFETY: the lock is held.
        let state = unsafe { &mut *self.state.get() };
        let block = state.free[class];
        if !block.is_null() {
            // SAFETY: a free block's first word is the next free block.
            state.free[class] = unsafe { *block.cast::<*mut u8>() };
            return block;
        }
        let skip = state.chunk.align_offset(size);
        if state.chunk.is_null() || state.left < skip + size {
            let Some(chunk) = sys::map_anonymous((CHUNK + LARGEST) as u64) else {
                return std::ptr::null_mut();
            };
            state.chunk = chunk;
            state.left = CHUNK + LARGEST;
        }
        let skip = state.chunk.align_offset(size);
        // SAFETY: skip + size <= left, checked or just refilled with more than that.
        let (block, rest) = unsafe { (state.chunk.add(skip), state.chunk.add(skip + size)) };
        state.chunk = rest;
        state.left -= skip + size;
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(class) = class(layout) else {
            // SAFETY: mapped by `alloc` with this length.
            let _ = unsafe { sys::syscall(libc::SYS_munmap, [block as u64, mapped_len(layout), 0, 0, 0, 0]) };
            return;
        };
        let _held = self.lock.lock();
        // SAFETY: the lock is held; the block is ours and unused, its first word is free for the list.
        unsafe {
            let state = &mut *self.state.get();
            *block.cast::<*mut u8>() = state.free[class];
            state.free[class] = block;
        }
    }
}
