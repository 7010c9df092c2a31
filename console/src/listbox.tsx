// The box of a list: what it shows while the list is loaded, if it is empty, and else its table.
import type { ComponentChildren } from "preact";
import type { Loaded } from "./load.ts";
import { AsOf, ProblemNote, Waiting } from "./widgets.tsx";

interface ListBoxProps<L extends { items: unknown[] }> {
  list: Loaded<L> & { again: () => void };
  /** What an empty list says. */
  none: ComponentChildren;
  /** The cells of the table's head. */
  head: ComponentChildren;
  /** The row of an item. */
  row: (item: L["items"][number]) => ComponentChildren;
  /** What stands below the table. */
  note: (list: L) => ComponentChildren;
}

export function ListBox<L extends { items: unknown[] }>({ list, none, head, row, note }: ListBoxProps<L>) {
  return (
    <>
      {list.problem && <ProblemNote problem={list.problem} again={list.again} />}
      {!list.data ? (
        !list.problem && (
          <div class="box">
            <Waiting />
          </div>
        )
      ) : list.data.items.length === 0 ? (
        <div class="box empty">{none}</div>
      ) : (
        <div class="box data">
          <table>
            <thead>
              <tr>{head}</tr>
            </thead>
            <tbody>{list.data.items.map(row)}</tbody>
          </table>
          <div class="below">
            <AsOf at={list.at} />
            <span class="muted small">{note(list.data)}</span>
          </div>
        </div>
      )}
    </>
  );
}
