//! Functions of the C library, of the C++ runtime and of libraries that replace `malloc`.

use super::Effect::*;
use super::Extent::{self, AtMost, AtMostProduct, Product, Returned, Unknown, Wide};
use super::{Effect, Given, Row};

const THREADS: &str = "results of threads";
const SPECIFIC: &str = "thread-specific data";
const STRTOK: &str = "the text of strtok";
const ENTRIES: &str = "entries of scandir";
/// An exception that was thrown is given back itself.
pub const THROWN: &str = "thrown";

const fn bytes(argument: u32) -> Extent {
    Extent::Argument(argument)
}

const fn copies(to: u32, from: u32, extent: Extent) -> Effect {
    Copies { to, from, extent }
}

const fn fills(extent: Extent) -> Effect {
    Fills {
        to: 0,
        value: 1,
        extent,
    }
}

const fn copies_text(padded_to: Option<u32>) -> Effect {
    CopiesText {
        to: 0,
        from: 1,
        padded_to,
    }
}

const fn calls(function: u32, given: &'static [Given]) -> Effect {
    Calls {
        function,
        given,
        result: None,
    }
}

pub(crate) const ROWS: &[Row] = &[
    // Memory and strings, read.
    (&[Reads(0, bytes(2)), Reads(1, bytes(2))], "memcmp bcmp"),
    (&[Reads(0, bytes(2)), ReturnsInside(0), DependsOn(1)], "memchr memrchr"),
    (&[Reads(0, Unknown), ReturnsInside(0), DependsOn(1)], "rawmemchr"),
    (&[Reads(0, bytes(1)), Reads(2, bytes(3)), ReturnsInside(0)], "memmem"),
    (&[ReadsText(0, None)], "strlen atoi atol atoll atof inet_addr"),
    (&[ReadsText(0, Some(1))], "strnlen"),
    (&[Compares(0, 1, None)], "strcmp strcoll"),
    (&[Compares(0, 1, Some(2))], "strncmp"),
    (
        &[ReadsText(0, None), ReadsText(1, None)],
        "strcasecmp strverscmp strspn strcspn",
    ),
    (&[ReadsText(0, Some(2)), ReadsText(1, Some(2))], "strncasecmp"),
    (
        &[ReadsText(0, None), ReturnsInside(0), DependsOn(1)],
        "strchr strrchr strchrnul index rindex",
    ),
    (
        &[ReadsText(0, None), ReadsText(1, None), ReturnsInside(0)],
        "strstr strpbrk strcasestr",
    ),
    (&[ReadsText(0, None), ReturnsInside(0)], "basename"),
    (&[Reads(0, Unknown)], "wcslen"),
    (&[Reads(0, Unknown), Reads(1, Unknown)], "wcscmp"),
    (&[Reads(0, Unknown), ReturnsInside(0), DependsOn(1)], "wcschr wcsrchr"),
    (&[Reads(1, bytes(2)), DependsOn(0)], "crc32 adler32"),
    (
        &[ReadsText(0, None), StoresInside { at: 1, from: 0 }],
        "strtol strtoul strtoll strtoull strtod strtof strtold strtoimax strtoumax strtoq strtouq",
    ),
    // Memory and strings, written.
    (&[copies(0, 1, bytes(2)), Returns(0)], "memcpy memmove memcpy_inline"),
    (&[copies(0, 1, bytes(2)), ReturnsInside(0), DependsOn(2)], "mempcpy"),
    (&[copies(0, 1, AtMost(3)), ReturnsInside(0)], "memccpy"),
    (&[copies(1, 0, bytes(2))], "bcopy"),
    (&[fills(bytes(2)), Returns(0)], "memset"),
    (&[Writes(0, bytes(1))], "bzero explicit_bzero"),
    (&[copies_text(None), Returns(0)], "strcpy"),
    (&[copies_text(None), ReturnsInside(0)], "stpcpy"),
    (&[copies_text(Some(2)), Returns(0)], "strncpy"),
    (&[copies_text(Some(2)), ReturnsInside(0)], "stpncpy"),
    (&[AppendsText { to: 0, from: 1 }, Returns(0)], "strcat strncat"),
    (&[WritesText(0, Some(2))], "strlcpy strlcat strxfrm"),
    (&[copies(1, 0, AtMost(2))], "swab"),
    (&[copies(0, 1, Wide(2)), Returns(0)], "wmemcpy wmemmove"),
    (&[copies(0, 1, Wide(2)), ReturnsInside(0)], "wmempcpy"),
    (&[fills(Wide(2)), Returns(0)], "wmemset"),
    (&[WritesText(0, None), Returns(0)], "wcscpy wcsncpy wcscat wcsncat"),
    (&[Prints { to: 0, room: None }], "sprintf vsprintf"),
    (&[Prints { to: 0, room: Some(1) }], "snprintf vsnprintf"),
    (&[WritesText(0, Some(1))], "strftime gethostname"),
    (&[WritesText(2, Some(3)), Returns(2)], "inet_ntop"),
    // GNU's returns the buffer or a text of its own.
    (&[WritesText(1, Some(2)), Returns(1), ReturnsOwn], "strerror_r"),
    (&[ReadsText(0, None), Scans(2)], "sscanf vsscanf"),
    (&[WritesElsewhere], "memfrob gcvt"),
    // They put zeros into the text.
    (
        &[
            KeepsInside(0, STRTOK),
            ReturnsInside(0),
            ReturnsKept(STRTOK),
            WritesElsewhere,
        ],
        "strtok",
    ),
    (
        &[
            StoresInside { at: 2, from: 0 },
            ReturnsInside(0),
            ReturnsHeld(2),
            WritesElsewhere,
        ],
        "strtok_r",
    ),
    (&[KeepsAnything, WritesElsewhere], "strsep"),
    (
        &[ReturnsInside(0), ReturnsOwn, WritesElsewhere],
        "dirname __xpg_basename",
    ),
    // Sorting and searching. That the bytes of what is sorted come from there is of no use to anyone.
    (
        &[
            Writes(0, Product(1, 2)),
            calls(3, &[Given::Inside(0), Given::Inside(0)]),
        ],
        "qsort heapsort",
    ),
    (
        &[
            Writes(0, Product(1, 2)),
            calls(3, &[Given::Inside(0), Given::Inside(0), Given::Argument(4)]),
        ],
        "qsort_r",
    ),
    (
        &[calls(4, &[Given::Argument(0), Given::Inside(1)]), ReturnsInside(1)],
        "bsearch lfind",
    ),
    // Allocation.
    (
        &[ReturnsNew(bytes(0))],
        "malloc valloc pvalloc alloca je_malloc mi_malloc tc_malloc",
    ),
    (
        &[ReturnsNew(bytes(0)), Throws],
        "_Znwm _Znam _ZnwmRKSt9nothrow_t _ZnamRKSt9nothrow_t _ZnwmSt11align_val_t _ZnamSt11align_val_t \
        _ZnwmSt11align_val_tRKSt9nothrow_t _ZnamSt11align_val_tRKSt9nothrow_t __cxa_allocate_exception",
    ),
    (&[ReturnsNew(bytes(1))], "aligned_alloc memalign"),
    (&[ReturnsNew(Product(0, 1))], "calloc je_calloc mi_calloc tc_calloc"),
    (&[ReturnsMoved(0, bytes(1))], "realloc je_realloc"),
    (&[ReturnsMoved(0, Product(1, 2))], "reallocarray"),
    (&[StoresNew(0)], "posix_memalign asprintf vasprintf getline getdelim"),
    (&[StoresNew(0), ReturnsNew(Unknown)], "open_memstream"),
    (&[StoresNew(3)], "getaddrinfo"),
    (
        &[
            StoresNew(1),
            calls(2, &[Given::Shared(ENTRIES)]),
            calls(3, &[Given::Shared(ENTRIES), Given::Shared(ENTRIES)]),
        ],
        "scandir",
    ),
    (&[ReturnsCopy(0)], "strdup"),
    (
        &[ReturnsNew(Unknown)],
        "strndup fopen fdopen tmpfile popen opendir fdopendir get_current_dir_name setmntent dlopen newlocale duplocale \
        tempnam canonicalize_file_name backtrace_symbols",
    ),
    (&[ReturnsNew(Unknown), Returns(2)], "freopen"),
    (&[ReturnsNew(Unknown), Returns(0), WritesElsewhere], "getcwd"),
    (&[ReturnsNew(Unknown), Returns(1), WritesElsewhere], "realpath"),
    // At a fixed address it is where the argument points to.
    (&[ReturnsMapping, Returns(0)], "mmap mremap"),
    (&[ReturnsMapping, Returns(1)], "shmat"),
    (
        &[],
        "free cfree free_sized je_free mi_free tc_free _ZdlPv _ZdaPv _ZdlPvm _ZdaPvm _ZdlPvSt11align_val_t \
        _ZdaPvSt11align_val_t _ZdlPvmSt11align_val_t _ZdaPvmSt11align_val_t malloc_usable_size malloc_trim mallopt \
        munmap shmdt mprotect madvise posix_madvise mlock munlock",
    ),
    (&[WritesElsewhere], "mincore"),
    // Files.
    (&[Writes(1, Returned { most: 2 })], "read pread recv readlink"),
    (&[Writes(1, Returned { most: 2 }), WritesElsewhere], "recvfrom"),
    (&[Writes(0, Returned { most: 1 })], "getrandom"),
    (&[Writes(0, AtMost(1))], "getentropy"),
    (&[Outputs, Reads(1, bytes(2))], "write pwrite send sendto"),
    (&[Outputs], "writev pwritev"),
    (&[WritesElsewhere], "readv preadv sendfile splice pipe pipe2"),
    (
        &[],
        "open openat creat close lseek fsync fdatasync ftruncate truncate fallocate posix_fallocate posix_fadvise \
        sync_file_range dup dup2 dup3 flock msync sync syncfs remove rename renameat unlink rmdir mkdir link symlink chdir \
        chmod chown access utime utimes futimens chroot memfd_create shm_open shm_unlink closedir rewinddir \
        socket bind listen connect shutdown setsockopt epoll_create epoll_create1 eventfd inotify_init isatty tcsetattr \
        ftok semget shmget",
    ),
    (
        &[WritesElsewhere],
        "stat fstat lstat fstatat statfs __xstat __fxstat __lxstat accept accept4 getsockopt getsockname getpeername \
        socketpair poll ppoll select pselect fcntl ioctl tcgetattr semop semctl shmctl",
    ),
    // Streams.
    (&[Writes(0, AtMostProduct(1, 2))], "fread fread_unlocked"),
    (&[Writes(0, AtMostProduct(2, 3))], "__fread_chk __fread_unlocked_chk"),
    (&[Writes(0, AtMost(1)), Returns(0)], "fgets fgets_unlocked"),
    (&[Writes(0, AtMost(2)), Returns(0)], "__fgets_chk __fgets_unlocked_chk"),
    (&[Writes(0, Unknown), Returns(0)], "gets"),
    (&[Returns(0), WritesElsewhere], "fgetws"),
    (&[Outputs, Reads(0, Product(1, 2))], "fwrite fwrite_unlocked"),
    (&[Outputs, ReadsText(0, None)], "puts fputs fputs_unlocked"),
    (
        &[Outputs],
        "printf fprintf dprintf vprintf vfprintf vdprintf putchar fputc putc putchar_unlocked fputc_unlocked perror psignal syslog \
        backtrace_symbols_fd",
    ),
    (
        &[],
        "fflush fclose pclose fseek ftell fseeko ftello rewind feof ferror clearerr fileno getc fgetc getchar ungetc \
        fsetpos openlog closelog",
    ),
    (&[WritesElsewhere], "scanf fscanf vscanf vfscanf setbuf fgetpos"),
    // What the library has of its own.
    (
        &[ReturnsOwn],
        "__errno_location __ctype_b_loc __ctype_tolower_loc __ctype_toupper_loc getenv secure_getenv strerror strsignal \
        localtime gmtime ctime asctime setlocale nl_langinfo localeconv getpwnam getpwuid getgrnam getgrgid ttyname \
        getlogin inet_ntoa gai_strerror readdir gethostbyname getservbyname getprotobyname dlerror __h_errno_location \
        gnu_get_libc_version __cxa_get_globals bindtextdomain textdomain hstrerror crypt zError zlibVersion",
    ),
    (&[Returns(0), ReturnsOwn], "gettext"),
    (&[Returns(1), ReturnsOwn], "dcgettext dgettext"),
    (&[Returns(0), Returns(1), ReturnsOwn], "ngettext"),
    // Time, and other things that are asked for.
    (&[Returns(1), WritesElsewhere], "localtime_r gmtime_r ctime_r asctime_r"),
    (&[ReturnsInside(0), WritesElsewhere], "strptime"),
    (
        &[WritesElsewhere],
        "time gettimeofday clock_gettime clock_getres times mktime timegm nanosleep clock_nanosleep getrusage getrlimit \
        uname getloadavg sysinfo prctl inet_pton inet_aton getnameinfo regexec modf frexp rand_r",
    ),
    (
        &[],
        "sleep usleep sched_yield clock tzset setrlimit sysconf pathconf getpagesize setsid setuid setgid umask kill raise \
        alarm setpriority getpriority sched_setaffinity sched_getcpu sched_setscheduler getauxval regfree freeaddrinfo \
        fegetround fesetround __sched_cpucount __cpu_indicator_init",
    ),
    (&[Draws], "rand random srand srandom drand48 lrand48 mrand48 srand48"),
    // Only what they return.
    (
        &[DependsOnAll],
        "abs labs llabs toupper tolower isalpha isdigit isalnum isspace isupper islower isxdigit isprint ispunct iscntrl \
        isgraph ffs ffsl ffsll htonl htons ntohl ntohs difftime getpid getppid gettid getuid geteuid getgid getegid \
        sin cos tan asin acos atan atan2 sinh cosh tanh exp exp2 expm1 log log2 log10 log1p pow sqrt cbrt floor ceil round \
        lround llround rint lrint trunc fmod fabs fmin fmax ldexp hypot floorf ceilf sqrtf powf logf expf fabsf roundf \
        fmodf floorl ceill fabsl powl isnan isinf finite __isnan __isinf __finite __fpclassify __signbit __popcountdi2",
    ),
    // The program's end, jumps and exceptions.
    (&[], "_exit exit abort __assert_fail __stack_chk_fail"),
    (
        &[WritesElsewhere],
        "fork vfork wait waitpid system dlclose pause sigsuspend _setjmp setjmp sigsetjmp __sigsetjmp longjmp siglongjmp \
        sigemptyset sigfillset sigaddset sigdelset sigismember sigprocmask",
    ),
    (
        &[CallsLater {
            function: 0,
            given: &[],
        }],
        "atexit at_quick_exit",
    ),
    (
        &[CallsLater {
            function: 0,
            given: &[Given::Argument(1)],
        }],
        "__cxa_atexit __cxa_thread_atexit",
    ),
    (&[ReturnsInside(0), ReturnsHeld(0)], "__cxa_begin_catch"),
    (&[Returns(0)], "__cxa_get_exception_ptr"),
    (&[Keeps(0, THROWN), Throws], "__cxa_throw"),
    (&[ReturnsKept(THROWN)], "__cxa_current_primary_exception"),
    (&[ReturnsInside(0)], "__dynamic_cast"),
    (
        &[],
        "__cxa_end_catch __cxa_rethrow __cxa_free_exception __cxa_guard_acquire __cxa_guard_release __cxa_guard_abort \
        __cxa_pure_virtual __cxa_bad_cast __clang_call_terminate _ZSt9terminatev __gxx_personality_v0",
    ),
    // Threads. Locks are volatile: what is written to one need not be flushed.
    (
        &[],
        "pthread_mutex_lock pthread_mutex_trylock pthread_mutex_unlock pthread_cond_wait pthread_cond_timedwait \
        pthread_cond_signal pthread_cond_broadcast pthread_rwlock_rdlock pthread_rwlock_wrlock pthread_rwlock_tryrdlock \
        pthread_rwlock_trywrlock pthread_rwlock_unlock pthread_spin_lock pthread_spin_trylock pthread_spin_unlock \
        pthread_barrier_wait pthread_self pthread_equal pthread_detach pthread_cancel pthread_kill pthread_setname_np \
        pthread_yield pthread_setaffinity_np pthread_testcancel",
    ),
    (
        &[WritesElsewhere],
        "pthread_mutex_init pthread_mutex_destroy pthread_mutexattr_init pthread_mutexattr_settype \
        pthread_mutexattr_destroy pthread_cond_init pthread_cond_destroy pthread_rwlock_init pthread_rwlock_destroy \
        pthread_spin_init pthread_spin_destroy pthread_attr_init pthread_attr_setstacksize pthread_attr_getstacksize \
        pthread_attr_setdetachstate pthread_attr_destroy pthread_sigmask pthread_getname_np pthread_getaffinity_np \
        pthread_setcancelstate pthread_setcanceltype pthread_barrier_init pthread_barrier_destroy pthread_condattr_init \
        pthread_condattr_setclock pthread_condattr_destroy sem_init sem_wait sem_trywait sem_timedwait sem_post \
        sem_destroy sem_getvalue sched_getaffinity",
    ),
    (
        &[Calls {
            function: 2,
            given: &[Given::Argument(3)],
            result: Some(THREADS),
        }],
        "pthread_create",
    ),
    (&[calls(1, &[])], "pthread_once"),
    (&[Keeps(0, THREADS)], "pthread_exit"),
    (
        &[StoresKept(1, THREADS)],
        "pthread_join pthread_tryjoin_np pthread_timedjoin_np",
    ),
    (&[Keeps(1, SPECIFIC)], "pthread_setspecific tss_set"),
    (&[ReturnsKept(SPECIFIC)], "pthread_getspecific tss_get"),
    (
        &[
            CallsLater {
                function: 1,
                given: &[Given::Kept(SPECIFIC)],
            },
            WritesElsewhere,
        ],
        "pthread_key_create tss_create",
    ),
];

/// Functions by the beginnings of their names: they write no memory that is not their own, and what they do to pointers is not known.
pub(crate) const FAMILIES: &[&str] = &[
    // C++ streams that write, and exceptions.
    "_ZNSo",
    "_ZNSt8ios_base",
    "_ZStls",
    "_ZSt16__ostream_insert",
    "_ZSt4endl",
    "_ZSt17__throw_",
    "_ZSt20__throw_",
    "_ZSt19__throw_",
    "__cxa_",
    "_Unwind_",
];
