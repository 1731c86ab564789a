//! Agent slots: how many agents work at a time, apart from the trial slots. A trial waits for one before
//! its agent's clock starts, in the order of asking.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

#[derive(Debug)]
struct State {
    limit: usize,
    at_work: usize,
    /// Permits that are to be given up when they come back.
    debt: usize,
}

/// A number of slots that can be changed while they are taken.
#[derive(Debug)]
pub(super) struct Pool {
    permits: Arc<Semaphore>,
    state: Mutex<State>,
    /// Rung at every change.
    bell: Arc<Notify>,
}

/// A slot that is taken, until it is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    permit: Option<OwnedSemaphorePermit>,
    pool: Arc<Pool>,
}

impl Pool {
    pub(super) fn new(limit: usize, bell: Arc<Notify>) -> Arc<Pool> {
        let limit = limit.clamp(1, Semaphore::MAX_PERMITS);
        let state = Mutex::new(State { limit, at_work: 0, debt: 0 });
        Arc::new(Pool { permits: Arc::new(Semaphore::new(limit)), state, bell })
    }

    fn with<T>(&self, what: impl FnOnce(&mut State) -> T) -> T {
        let done = what(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.bell.notify_one();
        done
    }

    /// Agents that may work, and that do.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.limit, state.at_work)
    }

    /// More or fewer, at least one; those at work work on.
    pub(super) fn set(&self, limit: usize) {
        let limit = limit.clamp(1, Semaphore::MAX_PERMITS);
        self.with(|state| {
            let (before, debt) = (state.limit, state.debt);
            state.limit = limit;
            if limit >= before {
                let paid = debt.min(limit - before);
                state.debt -= paid;
                self.permits.add_permits(limit - before - paid);
            } else {
                let less = before - limit;
                state.debt += less - self.permits.forget_permits(less);
            }
        });
    }

    /// Waits for a slot.
    pub(super) async fn take(self: &Arc<Self>) -> Taken {
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        self.with(|state| state.at_work += 1);
        Taken { permit, pool: Arc::clone(self) }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let permit = self.permit.take();
        self.pool.with(|state| {
            state.at_work = state.at_work.saturating_sub(1);
            if state.debt > 0
                && let Some(permit) = permit
            {
                state.debt -= 1;
                permit.forget();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_go_up_and_down_while_they_are_taken() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let pool = Pool::new(3, Arc::default());
            let mut taken = vec![pool.take().await, pool.take().await, pool.take().await];
            pool.set(1);
            assert_eq!(pool.counts(), (1, 3));
            taken.pop();
            taken.pop();
            assert_eq!((pool.counts(), pool.permits.available_permits()), ((1, 1), 0));
            pool.set(2);
            let second = pool.take().await;
            assert_eq!((pool.counts(), pool.permits.available_permits()), ((2, 2), 0));
            pool.set(1);
            pool.set(4);
            assert_eq!(pool.permits.available_permits(), 2, "what was owed is paid first");
            drop((second, taken));
            assert_eq!((pool.counts(), pool.permits.available_permits()), ((4, 0), 4));
            pool.set(0);
            assert_eq!((pool.counts(), pool.permits.available_permits()), ((1, 0), 1));
        });
    }
}
