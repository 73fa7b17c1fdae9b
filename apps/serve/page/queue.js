
// Requests that wait here and those at work at the server. A browser opens few connections to a
// server, and one of them asks for its state.
const kAtOnce = 4;

// A request: run(signal) does it, ended(error) hears how; error is null where all went well.
class Job {
  constructor(kind, run, ended, moved) {
    Object.assign(this, {kind, run, ended, moved});
    this.state = 'waiting';
    this.abort = new AbortController();
  }
}

const queue = {
  jobs: [],  // those that are not over, oldest first

  add(job) {
    this.jobs.push(job);
    this.go_on();
  },

  go_on() {
    for (const job of this.jobs) {
      if (this.jobs.filter((other) => other.state === 'work').length >= kAtOnce) break;
      if (job.state === 'waiting') this.start(job);
    }
    this.show();
  },

  async start(job) {
    job.state = 'work';
    job.begun = performance.now();
    let error = null;
    try {
      await job.run(job.abort.signal);
    } catch (caught) {
      error = caught;
      if (!is_cancel(caught) && !(caught instanceof ServerError)) {
        error = new ServerError(0, {message: `this page failed: ${caught.message}`});
      }
    }
    this.leave(job, error);
  },

  leave(job, error) {
    if (job.state === 'over') return;
    job.state = 'over';
    this.jobs = this.jobs.filter((other) => other !== job);
    job.ended(error);
    this.go_on();
  },

  // At work: closing its connection cancels it at the server.
  cancel(job) {
    if (job.state === 'over') return;
    job.abort.abort();
    this.leave(job, new DOMException('cancelled', 'AbortError'));
    announce('Cancelled');
  },

  cancel_last() {
    if (this.jobs.length > 0) this.cancel(this.jobs[this.jobs.length - 1]);
  },

  cancel_all() {
    for (const job of [...this.jobs]) this.cancel(job);
    announce('All cancelled');
  },

  show() {
    const at_work = this.jobs.filter((job) => job.state === 'work').length;
    const waiting = this.jobs.length - at_work;
    const parts = [];
    if (at_work > 0) parts.push(`${at_work} at work`);
    if (waiting > 0) parts.push(`${waiting} ${waiting === 1 ? 'waits' : 'wait'}`);
    set_text(find('queue-text'), parts.join(', ') || 'Nothing at work');
    find('cancel-all').disabled = this.jobs.length === 0;
    this.jobs.forEach((job, at) => job.moved(at));
    show_results();
  },
};

// What is at work says for how long.
setInterval(() => queue.jobs.forEach((job, at) => job.moved(at)), 200);

function job_text(job, at) {
  if (job.state === 'work') return `at work \u00b7 ${((performance.now() - job.begun) / 1000).toFixed(1)} s`;
  return at === 0 ? 'waits' : `waits after ${plural(at, 'request', 'requests')}`;
}
