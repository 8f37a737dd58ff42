"""What goes wrong outside our control, as one line with a remedy: errors of the system, memory, missing packages."""

import errno

REMEDIES = {
    errno.ENOSPC: "the disk is full; free some space and run the same command again, what was finished stays",
    errno.EDQUOT: "the disk quota is used up; free some space and run the same command again, what was finished stays",
    errno.EROFS: "the file system is read-only; name a place that can be written",
    errno.EACCES: "permission denied; name a place that you may read and write, or change its permissions",
    errno.EPERM: "not permitted; name a place that you may read and write, or change its permissions",
    errno.ENAMETOOLONG: "the name is too long for the file system; shorten it",
    errno.ENOTDIR: "a file is in the place of a directory; name another path, or move that file away",
    errno.EEXIST: "a file is in the place of a directory; name another path, or move that file away",
    errno.EISDIR: "it is a directory; name a file",
    errno.ENOENT: "there is no such file or directory; check the path",
    errno.ELOOP: "symbolic links lead in a circle; name the file itself",
    errno.EMFILE: "too many files are open; raise the limit with ulimit -n",
    errno.EIO: "the disk failed to read or write; copy the data elsewhere",
    errno.ENOMEM: "the memory is used up; see --memory, or use smaller batches or a smaller network",
}


def explained(problem: BaseException) -> str:
    """One line about a problem: what, where, and what to do."""
    if isinstance(problem, OSError) and problem.errno is not None:
        remedy = REMEDIES.get(problem.errno, problem.strerror or str(problem))
        return f"{problem.filename}: {remedy}" if problem.filename else f"{problem}: {remedy}"
    if isinstance(problem, MemoryError):
        return f"{problem or 'out of memory'}: {REMEDIES[errno.ENOMEM]}"
    return str(problem)


def is_memory(problem: RuntimeError) -> bool:
    """Whether torch reports with this error that memory is used up."""
    return any(words in str(problem) for words in ("can't allocate memory", "not enough memory", "out of memory"))
