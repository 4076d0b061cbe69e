"""Takes the screenshots of README.md and docs/ into docs/img: `make screenshots`.

They are of one real run, `taskplace run conf/flights.yaml`, in a directory of its own: its terminal, its live page and
what `status` and `explain` say while an executor has died and its replacement warms up, and at the end its page. It
takes as long as the run, some minutes. `--folder DIR` keeps the run, and `--pages` takes the pictures again that need
no run beside it: those of its page, as the code makes it now. Needs Chromium (`scripts/chromium.sh`).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from job import Job
from pages import Browser, browser, live_page, pages_of
from terminals import doctor, of_checkpoint, of_run


def main() -> None:
    """Read the command line, and take the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, help="where the run is, or is to be kept; made if it is missing"
    )
    parser.add_argument("--pages", action="store_true", help="only what needs no run beside it")
    parser.add_argument("--port", type=int, default=4050, help="of the live page")
    args = parser.parse_args()
    if args.pages and args.folder is None:
        parser.error("--pages needs the folder of a run")
    with tempfile.TemporaryDirectory() as made, browser() as seen:
        folder = (args.folder or Path(made)).absolute()
        job = Job(folder, args.port)
        if not args.pages:
            take_run(job, seen)
        pages_of(seen, folder)
        doctor(seen, job)


def take_run(job: Job, seen: Browser) -> None:
    """Run the job, and take the pictures of what goes on meanwhile."""
    with job:
        live_page(seen, job)
        of_checkpoint(seen, job)
        of_run(seen, job)


if __name__ == "__main__":
    main()
