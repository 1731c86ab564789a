//! Waiting for a point in time at the price of one wake-up.
//!
//! The runtime's own timer wakes its thread two or three times for a deadline a second away (its wheel
//! turns in steps); a screen that counts seconds for days should not. On Linux a timerfd does it in
//! one.

use std::io;
use std::time::Duration;

/// One deadline at a time.
#[derive(Debug)]
pub struct Alarm {
    #[cfg(target_os = "linux")]
    timer: tokio::net::unix::pipe::Receiver,
}

#[cfg(target_os = "linux")]
impl Alarm {
    /// Must be called inside the runtime.
    ///
    /// # Errors
    /// When the system has no timer left.
    pub fn new() -> io::Result<Alarm> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        // No pipe, but all that this type does is what is wanted of a timer: it waits until its descriptor
        // can be read, reads eight bytes and closes it in the end. The type made for it is unsafe to make.
        let timer = tokio::net::unix::pipe::Receiver::from_owned_fd_unchecked(fd)?;
        Ok(Alarm { timer })
    }

    /// Waits so long; for ever without a time. Safe to drop and call again.
    pub async fn after(&self, wait: Option<Duration>) {
        // A timer that was set for a wait that is over must not go off any more.
        if self.set(wait.map(|w| w.max(Duration::from_nanos(1))).unwrap_or_default()).is_err() {
            return tokio::time::sleep(wait.unwrap_or(Duration::from_secs(1))).await;
        }
        while self.timer.readable().await.is_ok() {
            match self.timer.try_read(&mut [0u8; 8]) {
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Arms the timer; zero disarms it.
    fn set(&self, wait: Duration) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value: value })?;
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
impl Alarm {
    /// Never fails here.
    ///
    /// # Errors
    /// None.
    pub fn new() -> io::Result<Alarm> {
        Ok(Alarm {})
    }

    /// Waits so long; for ever without a time. Safe to drop and call again.
    pub async fn after(&self, wait: Option<Duration>) {
        match wait {
            Some(wait) => tokio::time::sleep(wait).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn it_goes_off_once_when_it_is_due_and_not_for_a_wait_that_was_left() {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            let Ok(alarm) = Alarm::new() else { return };
            let begin = Instant::now();
            alarm.after(Some(Duration::from_millis(30))).await;
            assert!(begin.elapsed() >= Duration::from_millis(30));
            // Left before it was due, then set for later: the earlier deadline is forgotten.
            let left =
                tokio::time::timeout(Duration::from_millis(5), alarm.after(Some(Duration::from_millis(20)))).await;
            assert!(left.is_err());
            let begin = Instant::now();
            alarm.after(Some(Duration::from_millis(60))).await;
            assert!(begin.elapsed() >= Duration::from_millis(60));
            let never = tokio::time::timeout(Duration::from_millis(30), alarm.after(None)).await;
            assert!(never.is_err());
        });
    }
}
