"use strict";
document.getElementById("report").textContent = document.getElementById("crashproof-data").textContent;
