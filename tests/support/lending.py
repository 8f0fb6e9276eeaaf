"""A world with a state for `agentlite make`: a library of a few books; not a test itself."""

import json
from pathlib import Path

LIBRARY = '''
import random

LEFT = []


class Library:
    def reset(self, books=None, **row):
        self.books = dict(books or {"b-101": "Emma", "b-102": "Dune", "b-103": "Momo"})
        self.lent, self.rooms, self.row = {}, {}, row

    def state(self):
        return {"books": {key: {"type": "book", "title": title} for key, title in
                          self.books.items()}, "lent": self.lent, "rooms": self.rooms}

    def find_book(self, title: str) -> str:
        """Finds the number of a book by its title.

        Args:
            title: The title of the book (e.g. 'Emma')
        """
        found = [key for key, name in self.books.items() if name == title]
        return {"book_id": found[0]} if found else {"error": f"no book is called {title}"}

    def borrow(self, book_id: str, days: int = 14) -> str:
        """Lends a book to the reader.

        Args:
            book_id: The number of the book
            days: For how many days
        """
        if book_id not in self.books:
            raise ValueError(f"no book {book_id}")
        self.lent[book_id] = days
        return {"loan": f"loan-{book_id}", "days": days}

    def give_back(self, book_id: str) -> str:
        """Takes a book back.

        Args:
            book_id: The number of the book
        """
        if book_id not in self.lent:
            raise ValueError(f"{book_id} is not lent")
        del self.lent[book_id]
        return {"returned": book_id}

    def reserve_room(self, size: str) -> str:
        """Reserves a reading room.

        Args:
            size: How large it is (choices: ["small", "large"])
        """
        number = len(self.rooms) + 1
        self.rooms[f"room-{number}"] = size
        return {"room": f"room-{number}"}

    def opening_hours(self, day: str) -> str:
        """Shows the opening hours of a day.

        Args:
            day: The day (choices: ["Monday", "Friday", "Sunday"])
        """
        return {"Monday": "9:00 to 17:00", "Friday": "9:00 to 20:00", "Sunday": "closed"}[day]

    def write_note(self, text: str) -> str:
        """Leaves a note for the staff.

        Args:
            text: The words of the note
        """
        return {"note": "noted"}

    def lucky_number(self) -> str:
        """Draws a lucky number for the reader."""
        return {"number": random.random()}

    def renamed(self, place: str) -> str:
        """Renames the branch of the library.

        Args:
            place: Any words at all
        """
        return {"place": place}

    def forget(self) -> str:
        """Lists the visits of this morning."""
        LEFT.append(1)
        return {"visits": len(LEFT)}
'''


def lending_library(folder: Path, rows: tuple[dict[str, object], ...] = ()) -> str:
    """Writes it, and its tasks where there are any; its name for --env."""
    (folder / "library.py").write_text(LIBRARY, encoding="utf-8")
    if rows:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "tasks.jsonl").write_text(lines, encoding="utf-8")
    return f"{folder / 'library.py'}:Library"
