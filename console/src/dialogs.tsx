// The dialogs that change something. They are one script, which is loaded when the first of them is opened.
import { ActDialog } from "./actdialog.tsx";
import { BulkDialog } from "./bulkdialog.tsx";
import { LimitDialog } from "./limitdialog.tsx";

export function Dialogs() {
  return (
    <>
      <ActDialog />
      <LimitDialog />
      <BulkDialog />
    </>
  );
}
