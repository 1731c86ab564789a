//! Which file system a directory lies on, and whether its change events can be believed.

use std::path::Path;

/// What `statfs` says of a directory's file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem {
    /// Short name for people: `ext4`, `NFS`, `FUSE`, …
    pub name: &'static str,
    /// True when inotify reports every change: the file system belongs to this kernel alone. On
    /// network and user-space file systems setting a watch succeeds and reports nothing of what
    /// others write, so that success proves nothing.
    pub local: bool,
}

/// Any file system that is not in the table: followed by polling, since nothing is known of it.
const UNKNOWN: FileSystem = FileSystem { name: "unknown file system", local: false };

/// Magic numbers of `statfs(2)` and of the kernel's `magic.h`.
const TABLE: &[(u32, &str, bool)] = &[
    (0xEF53, "ext4", true),
    (0x5846_5342, "xfs", true),
    (0x9123_683E, "btrfs", true),
    (0x0102_1994, "tmpfs", true),
    (0x8584_58F6, "ramfs", true),
    (0x794C_7630, "overlayfs", true),
    (0x2FC1_2FC1, "zfs", true),
    (0xF2F5_2010, "f2fs", true),
    (0xCA45_1A4E, "bcachefs", true),
    (0x3153_464A, "jfs", true),
    (0x5265_4973, "reiserfs", true),
    (0x0000_4D44, "vfat", true),
    (0x2011_BAB0, "exfat", true),
    (0x7366_746E, "ntfs", true),
    (0x0000_F15F, "ecryptfs", true),
    (0x0000_6969, "NFS", false),
    (0x0000_517B, "SMB", false),
    (0xFF53_4D42, "CIFS", false),
    (0xFE53_4D42, "SMB", false),
    (0x6573_5546, "FUSE", false),
    (0x0102_1997, "9p", false),
    (0x00C3_6400, "Ceph", false),
    (0x0BD0_0BD0, "Lustre", false),
    (0x5346_414F, "AFS", false),
    (0x7375_7245, "Coda", false),
    (0x4750_4653, "GPFS", false),
    (0x1983_0326, "BeeGFS", false),
    (0x7461_636F, "OCFS2", false),
    (0x0116_1970, "GFS2", false),
    (0x786F_4256, "vboxsf", false),
];

/// The file system that holds `path`. An unreachable path counts as an unknown one.
pub fn of(path: &Path) -> FileSystem {
    match rustix::fs::statfs(path) {
        // The field is signed on some machines; the magic numbers are 32 bits wide.
        Ok(stat) => by_magic(stat.f_type as u32),
        Err(_) => UNKNOWN,
    }
}

fn by_magic(magic: u32) -> FileSystem {
    TABLE.iter().find(|(known, _, _)| *known == magic).map_or(UNKNOWN, |&(_, name, local)| FileSystem { name, local })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_and_unknown_file_systems_are_polled() {
        assert!(by_magic(0xEF53).local);
        assert!(by_magic(0x794C_7630).local);
        for magic in [0x6969, 0x6573_5546, 0xFF53_4D42, 0x0102_1997, 0x1234_5678] {
            assert!(!by_magic(magic).local, "{magic:x}");
        }
        assert_eq!(of(Path::new("/proc/self/nothing/here")), UNKNOWN);
        assert_eq!(of(Path::new("/proc")).name, "unknown file system");
    }
}
