// Starts the sections. One that fails must not take the others with it.

for (const start of [
  startTheme,
  startCharts,
  startSections,
  startDetail,
  startClasses,
  startMatrices,
  startCosts,
  startCurves,
  startTradeoff,
  startReliability,
  startCommand,
]) {
  try {
    start();
  } catch (error) {
    reportError(error);
  }
}
for (const region of document.querySelectorAll(".scroll[data-name]")) watchScrolling(region);
